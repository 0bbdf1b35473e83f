//! Writes passages to files.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use turnwise_core::hexadecimal;

use super::{Description, ENDS, FORMAT, MANIFEST, TEXTS};
use crate::lucene::{hash_text, write_varint};
use crate::manifest::Manifest;
use crate::{Passage, RetrievalError};

const BUFFER: usize = 1 << 20;

/// Writes a folder of passages, usable once finished.
#[derive(Debug)]
pub struct StoreWriter {
    folder: PathBuf,
    texts: BufWriter<File>,
    ends: BufWriter<File>,
    end: u64,
    passages: u32,
    hash: Sha256,
    head: Vec<u8>,
}

impl StoreWriter {
    /// Creates a writer and, if necessary, its folder.
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::File`] if the folder has passages or is not writable.
    pub fn create(folder: &Path) -> Result<Self, RetrievalError> {
        fs::create_dir_all(folder).map_err(|error| RetrievalError::file(folder, &error))?;
        let create = |name: &str| -> Result<_, RetrievalError> {
            let path = folder.join(name);
            let file = File::create_new(&path).map_err(|error| RetrievalError::file(&path, &error))?;
            Ok(BufWriter::with_capacity(BUFFER, file))
        };
        Ok(Self {
            folder: folder.to_owned(),
            texts: create(TEXTS)?,
            ends: create(ENDS)?,
            end: 0,
            passages: 0,
            hash: Sha256::new(),
            head: Vec::new(),
        })
    }

    /// Appends a passage.
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::File`] if writing fails, and [`RetrievalError::Index`] after 2^32 -
    /// 1 passages.
    pub fn add(&mut self, id: &str, contents: &str) -> Result<(), RetrievalError> {
        self.passages = self.passages.checked_add(1).ok_or_else(|| RetrievalError::Index {
            reason: format!("a collection holds at most {} passages", u32::MAX),
        })?;
        hash_text(&mut self.hash, id, contents);
        self.head.clear();
        write_varint(&mut self.head, id.len() as u64);
        self.end += (self.head.len() + id.len() + contents.len()) as u64;
        let mut write = || -> io::Result<()> {
            self.texts.write_all(&self.head)?;
            self.texts.write_all(id.as_bytes())?;
            self.texts.write_all(contents.as_bytes())?;
            self.ends.write_all(&self.end.to_le_bytes())
        };
        write().map_err(|error| RetrievalError::file(&self.folder, &error))
    }

    /// Flushes the files, writes the manifest, and returns the number of passages.
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::File`] if writing fails.
    pub fn finish(mut self) -> Result<u32, RetrievalError> {
        for file in [&mut self.texts, &mut self.ends] {
            file.flush()
                .and_then(|()| file.get_ref().sync_all())
                .map_err(|error| RetrievalError::file(&self.folder, &error))?;
        }
        let fingerprint = hexadecimal(&self.hash.finalize());
        let description = Description { passages: self.passages, fingerprint };
        Manifest::new(FORMAT, description).write(&self.folder, MANIFEST)?;
        Ok(self.passages)
    }
}

pub(super) fn fingerprint<'a>(passages: impl Iterator<Item = &'a Passage>) -> String {
    let mut hash = Sha256::new();
    passages.for_each(|passage| hash_text(&mut hash, &passage.id, &passage.contents));
    hexadecimal(&hash.finalize())
}
