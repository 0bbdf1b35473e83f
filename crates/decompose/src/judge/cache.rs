//! Disk cache of scores, keyed by a hash of the question.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use turnwise_core::hexadecimal;

use super::{JudgeError, scores};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key([u8; 32]);

impl Key {
    /// Hashes each text with its length, so that different lists get different keys.
    pub(super) fn of(texts: &[&str]) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"turnwise judge 1");
        for text in texts {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        }
        Self(hash.finalize().into())
    }

    pub(super) fn hex(&self) -> String {
        hexadecimal(&self.0)
    }

    pub(super) fn coordinate(&self) -> u64 {
        self.0.iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte))
    }
}

#[derive(Serialize, Deserialize)]
struct Entry {
    model: String,
    scores: Vec<f64>,
}

pub(super) enum Hit {
    Scores(Vec<f64>),
    /// A corrupt file, which will be overwritten.
    Broken,
    Nothing,
}

/// A folder of files `ab/abcd....json`.
#[derive(Debug)]
pub(super) struct Cache {
    /// `None` disables the cache.
    folder: Option<PathBuf>,
}

impl Cache {
    pub(super) fn open(folder: &Path) -> Result<Self, JudgeError> {
        if folder.as_os_str().is_empty() {
            return Ok(Self { folder: None });
        }
        fs::create_dir_all(folder).map_err(JudgeError::io(folder))?;
        Ok(Self { folder: Some(folder.to_owned()) })
    }

    fn path(&self, key: &Key) -> Option<PathBuf> {
        let name = key.hex();
        Some(self.folder.as_ref()?.join(&name[..2]).join(format!("{name}.json")))
    }

    pub(super) fn get(&self, key: &Key, turns: usize) -> Hit {
        let Some(bytes) = self.path(key).and_then(|path| fs::read(path).ok()) else { return Hit::Nothing };
        let scores = serde_json::from_slice::<Entry>(&bytes)
            .ok()
            .and_then(|entry| scores::parse(&serde_json::to_string(&entry.scores).ok()?, turns).ok());
        scores.map_or(Hit::Broken, Hit::Scores)
    }

    pub(super) fn put(&self, key: &Key, model: &str, scores: &[f64]) -> std::io::Result<()> {
        let Some(path) = self.path(key) else { return Ok(()) };
        let entry = Entry { model: model.to_owned(), scores: scores.to_vec() };
        let bytes = serde_json::to_vec(&entry)?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        turnwise_files::write_shared(&path, |file| file.write_all(&bytes))
    }
}
