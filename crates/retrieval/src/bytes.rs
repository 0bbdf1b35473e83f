//! The bytes of a file, mapped, or bytes in memory.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

/// Bytes that are only read.
pub(crate) enum Bytes {
    /// In memory.
    Memory(Vec<u8>),
    /// A file, of which the system holds in memory what is asked for often.
    Mapped(Mmap),
}

impl Bytes {
    /// Maps a file.
    pub(crate) fn map(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        // SAFETY: the map is read-only and all that is read from it is checked, so other contents cannot break Rust's
        // rules. The program writes such a file once, in a new folder; shortening it by hand while it is open would end
        // the program.
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
