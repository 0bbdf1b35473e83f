//! Read-only bytes in memory or a mapped file.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

pub(crate) enum Bytes {
    Memory(Vec<u8>),
    Mapped(Mmap),
}

impl Bytes {
    pub(crate) fn map(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        // SAFETY: the map is read-only and its content is checked when read. Such files are written
        // once, in a new folder; shortening an open one by hand would end the program.
        #[allow(unsafe_code)]
        let map = unsafe { Mmap::map(&file) }?;
        Ok(Self::Mapped(map))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Memory(bytes) => bytes,
            Self::Mapped(map) => map,
        }
    }
}
