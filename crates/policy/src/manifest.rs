//! The manifest of a checkpoint, `COMPLETE`: its files with sizes and checksums, written last.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::PolicyError;
use crate::run_folder::COMPLETE;

/// The files of a checkpoint.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Files by their path in the checkpoint, with `/` as separator.
    files: BTreeMap<String, FileFacts>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileFacts {
    bytes: u64,
    crc32c: u32,
}

/// How strictly to verify a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Every file exists and has the listed size.
    Sizes,
    /// Every file exists and has the listed size and checksum.
    Contents,
}

impl Manifest {
    /// Computes the manifest of a folder.
    ///
    /// # Errors
    /// Fails on an unreadable file.
    pub fn of(folder: &Path) -> Result<Self, PolicyError> {
        let mut files = BTreeMap::new();
        for (name, path) in files_below(folder, "")? {
            let bytes = fs::metadata(&path).map_err(PolicyError::io(&path))?.len();
            let crc32c = checksum(&path).map_err(PolicyError::io(&path))?;
            files.insert(name, FileFacts { bytes, crc32c });
        }
        Ok(Self { files })
    }

    /// Reads a checkpoint's manifest.
    ///
    /// # Errors
    /// Fails if the manifest is missing or invalid, or lists no files.
    pub fn read(folder: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(folder.join(COMPLETE))
            .map_err(|_| format!("has no {COMPLETE}, so its files cannot be verified"))?;
        let manifest = if text.trim().is_empty() {
            Self::default()
        } else {
            serde_json::from_str(&text).map_err(|error| format!("{COMPLETE} cannot be read: {error}"))?
        };
        if manifest.files.is_empty() {
            return Err(format!("{COMPLETE} lists no files, so they cannot be verified"));
        }
        Ok(manifest)
    }

    /// Verifies a checkpoint's files whose paths start with `prefix`, except hidden ones, which are
    /// never read.
    ///
    /// # Errors
    /// Fails if a file is missing, changed or unlisted, or if the manifest lists no file with this
    /// prefix. The error names the file or prefix.
    pub fn check(&self, folder: &Path, prefix: &str, check: Check) -> Result<(), String> {
        if !self.files.keys().any(|name| name.starts_with(prefix)) {
            return Err(format!("{COMPLETE} lists no file of {prefix}, so it cannot be verified"));
        }
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
        let found = files_below(folder, "").map_err(|error| error.to_string())?;
        let own = |name: &&String| name.starts_with(prefix) && *name != COMPLETE && !is_hidden(name);
        match found.keys().filter(own).find(|name| !self.files.contains_key(*name)) {
            Some(name) => Err(format!("{name} is not listed in {COMPLETE}; move it out of the checkpoint")),
            None => Ok(()),
        }
    }
}

fn is_hidden(name: &str) -> bool {
    name.split('/').any(|part| part.starts_with('.'))
}

fn files_below(folder: &Path, prefix: &str) -> Result<BTreeMap<String, PathBuf>, PolicyError> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(PolicyError::io(folder))? {
        let path = entry.map_err(PolicyError::io(folder))?.path();
        let name = format!("{prefix}{}", path.file_name().unwrap_or_default().to_string_lossy());
        if path.is_dir() {
            found.extend(files_below(&path, &format!("{name}/"))?);
        } else {
            found.insert(name, path);
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
