//! Passages by index, in memory or memory-mapped.
//!
//! ```text
//! passages.bin   for every passage: length of its identifier (variable-length integer), identifier, contents
//! passages.idx   end of every passage in that file, u64, little-endian
//! turnwise-passages.json   how many there are, what they hash to, sizes of the files
//! ```

mod writer;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::manifest::Manifest;
use crate::{Passage, RetrievalError};

pub use writer::StoreWriter;

/// Manifest name.
pub const MANIFEST: &str = "turnwise-passages.json";
const FORMAT: u32 = 1;
const TEXTS: &str = "passages.bin";
const ENDS: &str = "passages.idx";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    passages: u32,
    /// SHA-256 over all passages: length and bytes of id and contents.
    fingerprint: String,
}

/// Read-only passages, shared between threads.
pub struct PassageStore {
    place: Place,
    fingerprint: String,
}

enum Place {
    Memory(Vec<Arc<Passage>>),
    Files { texts: Bytes, ends: Bytes, folder: PathBuf, passages: u32 },
}

impl std::fmt::Debug for PassageStore {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("PassageStore").field("passages", &self.len()).finish_non_exhaustive()
    }
}

impl PassageStore {
    /// Stores passages in memory.
    pub fn in_memory(passages: impl IntoIterator<Item = Passage>) -> Self {
        let passages: Vec<Arc<Passage>> = passages.into_iter().map(Arc::new).collect();
        let fingerprint = writer::fingerprint(passages.iter().map(AsRef::as_ref));
        Self { place: Place::Memory(passages), fingerprint }
    }

    /// Opens a folder written by a [`StoreWriter`].
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::File`] if files are missing, truncated or of an unknown format.
    pub fn open(folder: &Path) -> Result<Self, RetrievalError> {
        let Description { passages, fingerprint } =
            Manifest::read(folder, MANIFEST, FORMAT, "passages")?.description;
        let map = |name: &str| {
            let path = folder.join(name);
            Bytes::map(&path).map_err(|error| RetrievalError::file(&path, &error))
        };
        let (texts, ends) = (map(TEXTS)?, map(ENDS)?);
        if ends.len() as u64 != u64::from(passages) * 8 {
            return Err(RetrievalError::damaged(
                &folder.join(ENDS),
                &format!("it has {} bytes, which are not 8 for each of {passages} passages", ends.len()),
            ));
        }
        let place = Place::Files { texts, ends, folder: folder.to_owned(), passages };
        Ok(Self { place, fingerprint })
    }

    /// Returns the number of passages.
    pub fn len(&self) -> usize {
        match &self.place {
            Place::Memory(passages) => passages.len(),
            Place::Files { passages, .. } => *passages as usize,
        }
    }

    /// Returns true if empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the passages' SHA-256 in hexadecimal, equal for equal collections.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Returns a passage by its index (from 0).
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::Index`] if the index is out of range, and [`RetrievalError::File`]
    /// for a damaged file.
    pub fn get(&self, position: u32) -> Result<Arc<Passage>, RetrievalError> {
        let index = position as usize;
        if index >= self.len() {
            return Err(RetrievalError::Index {
                reason: format!("passage {position} was asked for, and there are {}", self.len()),
            });
        }
        match &self.place {
            Place::Memory(passages) => Ok(Arc::clone(&passages[index])),
            Place::Files { texts, ends, folder, .. } => read(texts, ends, index)
                .map(Arc::new)
                .ok_or_else(|| RetrievalError::damaged(&folder.join(TEXTS), "a passage is no text")),
        }
    }

    /// Iterates over the passages in order.
    ///
    /// # Errors
    /// Items fail like [`PassageStore::get`].
    pub fn iter(&self) -> impl Iterator<Item = Result<Arc<Passage>, RetrievalError>> + '_ {
        (0..self.len() as u32).map(|position| self.get(position))
    }
}

fn read(texts: &[u8], ends: &[u8], index: usize) -> Option<Passage> {
    let end = |index: usize| ends.get(index * 8..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let start = match index.checked_sub(1) {
        None => 0,
        Some(before) => end(before)?,
    };
    let mut bytes = texts.get(usize::try_from(start).ok()?..usize::try_from(end(index)?).ok()?)?;
    let length = usize::try_from(crate::lucene::read_varint(&mut bytes)?).ok()?;
    let (id, contents) = bytes.split_at_checked(length)?;
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
    Some(Passage { id: text(id)?, contents: text(contents)? })
}
