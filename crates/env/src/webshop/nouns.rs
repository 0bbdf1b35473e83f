//! Nouns in product titles, which the type factor compares.
//!
//! `tools/webshop_nouns.py` finds nouns and proper nouns with spaCy, like the original, and writes
//! `nouns.jsonl` (or `.zst`) in the official folder. The nouns are in lower case and in the order
//! of the title, with repetitions:
//!
//! ```text
//! {"title": "Stoneware Mug with Handle", "nouns": ["stoneware", "mug", "handle"]}
//! ```
//!
//! The full catalogue uses a memory-mapped copy (`nouns.bin`):
//!
//! ```text
//! magic (8)  size of nouns.jsonl u64  number of products u64  end of each list u64  lists (postcard)
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use memmap2::Mmap;
use serde::Deserialize;
use turnwise_core::EnvError;

use super::catalogue::Catalogue;
use super::official;

/// Name of the noun file.
pub(crate) const NOUNS: &str = "nouns.jsonl";

const MAGIC: &[u8; 8] = b"TWNOUNS1";
const HEAD: usize = 24;

#[derive(Deserialize)]
struct Titled {
    title: String,
    nouns: Vec<String>,
}

/// Reads the nouns of each title, or returns `None` if the folder has no noun file.
///
/// # Errors
/// Fails if the file cannot be read or a line lacks a key.
pub fn read(folder: &Path) -> Result<Option<HashMap<String, Vec<String>>>, EnvError> {
    let Ok(path) = official::find(folder, &[NOUNS]) else { return Ok(None) };
    let mut found = HashMap::new();
    for (number, line) in (1..).zip(turnwise_files::lines(official::open(&path)?)) {
        let line = line.map_err(|source| EnvError::io(&path, source))?;
        let Titled { title, nouns } = serde_json::from_str(&line).map_err(|error| EnvError::File {
            path: format!("{}, line {number}", path.display()),
            reason: format!("not an object with `title` and `nouns`: {error}; make the file again with tools/webshop_nouns.py"),
        })?;
        found.insert(title, nouns);
    }
    Ok(Some(found))
}

#[derive(Debug)]
pub(super) struct NounFile {
    map: Mmap,
    count: usize,
}

impl NounFile {
    pub(super) fn open_or_make(
        path: &Path,
        folder: &Path,
        catalogue: &Catalogue,
    ) -> Result<Option<Self>, EnvError> {
        let source = official::find(folder, &[NOUNS]).ok();
        let size = source.and_then(|source| std::fs::metadata(source).ok()).map(|data| data.len());
        if let Some(file) = Self::open(path, catalogue.len(), size)? {
            return Ok(Some(file));
        }
        let Some(nouns) = read(folder)? else { return Ok(None) };
        Self::make(path, &nouns, size.unwrap_or(0), catalogue)?;
        Self::open(path, catalogue.len(), size)
    }

    fn open(path: &Path, count: usize, size: Option<u64>) -> Result<Option<Self>, EnvError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(EnvError::io(path, error)),
        };
        // SAFETY: the map is read-only, every value read from it is checked, and the file is only
        // replaced by renaming.
        #[allow(unsafe_code)]
        let map = unsafe { Mmap::map(&file) }.map_err(|source| EnvError::io(path, source))?;
        let found = Self { map, count };
        let whole = found.map.starts_with(MAGIC)
            && found.number(16) == Some(count as u64)
            && size.is_none_or(|size| found.number(8) == Some(size))
            && found.end(count).is_some_and(|end| end == found.map.len());
        Ok(whole.then_some(found))
    }

    fn make(
        path: &Path,
        nouns: &HashMap<String, Vec<String>>,
        size: u64,
        catalogue: &Catalogue,
    ) -> Result<(), EnvError> {
        let (mut ends, mut lists) = (Vec::with_capacity(catalogue.len() * 8), Vec::new());
        for index in 0..catalogue.len() as u32 {
            let list = nouns.get(&catalogue.product(index)?.title);
            let list = postcard::to_stdvec(&list).map_err(|error| EnvError::Other(error.to_string()))?;
            lists.extend(list);
            let end = HEAD + catalogue.len() * 8 + lists.len();
            ends.extend((end as u64).to_le_bytes());
        }
        let (size, count) = (size.to_le_bytes(), (catalogue.len() as u64).to_le_bytes());
        let parts = [&MAGIC[..], &size, &count, &ends, &lists];
        let written =
            turnwise_files::write_shared(path, |file| parts.iter().try_for_each(|part| file.write_all(part)));
        written.map_err(|source| EnvError::io(path, source))
    }

    fn number(&self, at: usize) -> Option<u64> {
        self.map.get(at..)?.first_chunk().map(|chunk| u64::from_le_bytes(*chunk))
    }

    /// Returns the offset at which the list before `index` ends and the list of `index` starts.
    fn end(&self, index: usize) -> Option<usize> {
        match index.checked_sub(1) {
            None => Some(HEAD + self.count * 8),
            Some(before) => self.number(HEAD + before * 8).map(|end| end as usize),
        }
    }

    pub(super) fn of(&self, index: usize) -> Option<Vec<String>> {
        let list = self.map.get(self.end(index)?..self.end(index + 1)?)?;
        postcard::from_bytes::<Option<Vec<String>>>(list).ok().flatten()
    }
}
