//! Atomic file access with the file name in errors.

use std::fmt::Display;
use std::fs;
use std::path::Path;

use turnwise_files::PathError;

use crate::TextError;

pub(crate) fn wrong(path: &Path, reason: impl Display) -> TextError {
    TextError::File { path: path.display().to_string(), reason: reason.to_string() }
}

pub(crate) fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> TextError {
    move |source| PathError::new(path, source).into()
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, TextError> {
    fs::read(path).map_err(failed(path))
}

pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), TextError> {
    turnwise_files::write_atomically(path, bytes).map_err(failed(path))
}
