//! A memory-mapped weights file.

use std::fs::File;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::ModelError;

pub(crate) struct Mapped {
    path: PathBuf,
    map: Mmap,
}

impl Mapped {
    #[expect(unsafe_code, reason = "a map is only as constant as its file")]
    pub(crate) fn open(path: &Path) -> Result<Self, ModelError> {
        let file = File::open(path).map_err(ModelError::io(path))?;
        // SAFETY: the map is read-only; the header is checked, and numbers may have any bits.
        // Models are replaced by renaming, which leaves a mapped file intact; truncating one while
        // it is read would end the program.
        let map = unsafe { Mmap::map(&file) }.map_err(ModelError::io(path))?;
        Ok(Self { path: path.to_path_buf(), map })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Releases a range that has been read, so that a model and its file are never both fully in
    /// memory.
    #[cfg(unix)]
    #[expect(unsafe_code, reason = "giving pages back is unsafe in general")]
    pub(crate) fn release(&self, part: &[u8]) {
        let start = part.as_ptr().addr() - self.map.as_ptr().addr();
        // SAFETY: the map is read-only and backed by a file, so released pages are read again with
        // the same bytes.
        let outcome =
            unsafe { self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, part.len()) };
        // On failure, the memory just stays in use.
        drop(outcome);
    }

    #[cfg(not(unix))]
    pub(crate) fn release(&self, _part: &[u8]) {}
}
