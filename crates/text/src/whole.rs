//! Files that are read and written whole.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::TextError;

/// An error about a file's contents.
pub(crate) fn wrong(path: &Path, reason: impl Display) -> TextError {
    TextError::File { path: path.display().to_string(), reason: reason.to_string() }
}

/// An error of the operating system about a file.
pub(crate) fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> TextError {
    let path = path.display().to_string();
    move |source| TextError::Io { path, source }
}

/// Reads a whole file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, TextError> {
    fs::read(path).map_err(failed(path))
}

/// Writes next to `path` and renames, so that the file is the old one, the new one or absent.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), TextError> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".tmp");
    let aside = PathBuf::from(aside);
    let mut file = File::create(&aside).map_err(failed(&aside))?;
    file.write_all(bytes).map_err(failed(&aside))?;
    file.sync_all().map_err(failed(&aside))?;
    fs::rename(&aside, path).map_err(failed(path))
}
