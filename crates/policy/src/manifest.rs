//! The files of a checkpoint with their sizes and checksums, as its last file, `COMPLETE`, lists them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::PolicyError;
use crate::run_folder::COMPLETE;

/// The files of a checkpoint.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// By path inside the checkpoint, with `/` between folders.
    files: BTreeMap<String, FileFacts>,
}

/// Size and checksum of a file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileFacts {
    bytes: u64,
    crc32c: u32,
}

/// Rigour with which a checkpoint is compared with its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Every file is there and has its size.
    Sizes,
    /// Every file has its checksum too.
    Contents,
}

impl Manifest {
    /// The manifest of what is in a folder now.
    ///
    /// # Errors
    /// Fails on a file that cannot be read.
    pub fn of(folder: &Path) -> Result<Self, PolicyError> {
        Ok(Self { files: facts_below(folder, "")? })
    }

    /// Returns the manifest in a checkpoint; `None` in one of an earlier version, which promises nothing.
    ///
    /// # Errors
    /// Fails if there is none, or it cannot be read.
    pub fn read(folder: &Path) -> Result<Option<Self>, String> {
        let text = fs::read_to_string(folder.join(COMPLETE)).map_err(|_| format!("has no {COMPLETE}"))?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        serde_json::from_str(&text).map(Some).map_err(|error| format!("{COMPLETE} cannot be read: {error}"))
    }

    /// Compares the files of a checkpoint whose paths begin with `prefix`.
    ///
    /// # Errors
    /// Returns the first file that is missing or not what was written.
    pub fn check(&self, folder: &Path, prefix: &str, check: Check) -> Result<(), String> {
        for (name, facts) in self.files.iter().filter(|(name, _)| name.starts_with(prefix)) {
            let path = folder.join(name);
            let bytes = fs::metadata(&path).map_err(|_| format!("{name} is missing"))?.len();
            if bytes != facts.bytes {
                return Err(format!("{name} has {bytes} bytes where {COMPLETE} says {}", facts.bytes));
            }
            if check == Check::Contents
                && checksum(&path).map_err(|error| format!("{name}: {error}"))? != facts.crc32c
            {
                return Err(format!("{name} does not have the checksum that {COMPLETE} says"));
            }
        }
        Ok(())
    }
}

/// Returns every file below a folder with its facts, by its path from there.
fn facts_below(folder: &Path, prefix: &str) -> Result<BTreeMap<String, FileFacts>, PolicyError> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(PolicyError::io(folder))? {
        let path = entry.map_err(PolicyError::io(folder))?.path();
        let name = format!("{prefix}{}", path.file_name().unwrap_or_default().to_string_lossy());
        if path.is_dir() {
            found.extend(facts_below(&path, &format!("{name}/"))?);
        } else {
            let bytes = fs::metadata(&path).map_err(PolicyError::io(&path))?.len();
            let crc32c = checksum(&path).map_err(PolicyError::io(&path))?;
            found.insert(name, FileFacts { bytes, crc32c });
        }
    }
    Ok(found)
}

fn checksum(path: &Path) -> io::Result<u32> {
    let mut file = fs::File::open(path)?;
    let (mut buffer, mut sum) = (vec![0; 1 << 20], 0);
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(sum);
        }
        sum = crc32c::crc32c_append(sum, &buffer[..read]);
    }
}
