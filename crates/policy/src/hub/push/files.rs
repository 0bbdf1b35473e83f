//! Files of a folder, with the hashes that the hub needs.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use turnwise_core::hexadecimal;

use super::PushError;

/// Number of leading bytes from which the hub decides whether a file is stored in LFS.
const SAMPLE: u64 = 512;

pub(super) struct LocalFile {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) size: u64,
    /// First bytes of the file, in base64.
    pub(super) sample: String,
}

impl LocalFile {
    fn open(&self) -> Result<File, PushError> {
        File::open(&self.path).map_err(PushError::io(&self.path))
    }

    /// Reads the file. Fails if the file's size has changed since the file was listed.
    pub(super) fn read(&self) -> Result<Vec<u8>, PushError> {
        let bytes = std::fs::read(&self.path).map_err(PushError::io(&self.path))?;
        if bytes.len() as u64 != self.size {
            return Err(PushError::folder(&self.path, "changed during the upload; rerun the command"));
        }
        Ok(bytes)
    }

    /// Returns the LFS object id.
    pub(super) fn sha256(&self) -> Result<String, PushError> {
        let (mut file, mut hash) = (self.open()?, Sha256::new());
        let mut buffer = vec![0; 1 << 20];
        loop {
            let read = file.read(&mut buffer).map_err(PushError::io(&self.path))?;
            if read == 0 {
                return Ok(hexadecimal(&hash.finalize()));
            }
            hash.update(&buffer[..read]);
        }
    }
}

/// Returns the git object id.
pub(super) fn blob(bytes: &[u8]) -> String {
    // `sha1` and `sha2` depend on different releases of `digest`.
    use sha1::Digest as _;
    let mut hash = Sha1::new();
    hash.update(format!("blob {}\0", bytes.len()));
    hash.update(bytes);
    hexadecimal(&hash.finalize())
}

/// Returns a folder's files except hidden ones, sorted by name.
pub(super) fn list(folder: &Path) -> Result<Vec<LocalFile>, PushError> {
    let mut found = Vec::new();
    walk(folder, "", &mut found)?;
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn walk(folder: &Path, prefix: &str, found: &mut Vec<LocalFile>) -> Result<(), PushError> {
    for entry in std::fs::read_dir(folder).map_err(PushError::io(folder))? {
        let path = entry.map_err(PushError::io(folder))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(PushError::folder(&path, "the name is not UTF-8; rename the file"));
        };
        if name.starts_with('.') {
            continue;
        }
        let name = format!("{prefix}{name}");
        // Follows links, which the hub's cache consists of.
        let metadata = std::fs::metadata(&path).map_err(PushError::io(&path))?;
        if metadata.is_dir() {
            walk(&path, &format!("{name}/"), found)?;
        } else if metadata.is_file() {
            let mut sample = Vec::new();
            let file = File::open(&path).map_err(PushError::io(&path))?;
            file.take(SAMPLE).read_to_end(&mut sample).map_err(PushError::io(&path))?;
            let sample = STANDARD.encode(sample);
            found.push(LocalFile { name, path, size: metadata.len(), sample });
        }
    }
    Ok(())
}
