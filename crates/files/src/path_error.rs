//! The error of file operations.

use std::io;
use std::path::Path;

/// Error of the operating system about a file or folder.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}")]
pub struct PathError {
    /// Path of the file or folder.
    pub path: String,
    /// The operating system's error.
    pub source: io::Error,
}

impl PathError {
    /// Adds the path to an error.
    pub fn new(path: &Path, source: io::Error) -> Self {
        Self { path: path.display().to_string(), source }
    }
}
