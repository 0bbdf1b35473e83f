//! Errors from reading and writing dumps.

use std::path::Path;

use thiserror::Error;
use turnwise_files::PathError;

/// Error when a dump cannot be read, used or written.
#[derive(Debug, Error)]
pub enum DumpError {
    /// An operating system error.
    #[error(transparent)]
    Io(#[from] PathError),
    /// The file as a whole is invalid.
    #[error("{path}: {reason}")]
    File {
        /// Path of the file.
        path: String,
        /// The problem and how to fix it.
        reason: String,
    },
    /// One line (or Parquet row) is invalid.
    #[error("{path}: line {line}: {reason}")]
    Line {
        /// Path of the file.
        path: String,
        /// Line number, counted from 1; in a Parquet file, the row.
        line: usize,
        /// The problem and how to fix it.
        reason: String,
    },
}

impl DumpError {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io(PathError::new(path, source))
    }

    pub(crate) fn file(path: &Path, reason: impl Into<String>) -> Self {
        Self::File { path: path.display().to_string(), reason: reason.into() }
    }

    pub(crate) fn line(path: &Path, line: usize, reason: impl Into<String>) -> Self {
        Self::Line { path: path.display().to_string(), line, reason: reason.into() }
    }
}
