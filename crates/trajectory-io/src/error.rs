//! Errors from reading and writing dumps.

use std::path::Path;

use thiserror::Error;
use turnwise_files::PathError;

/// Error from reading, using or writing a dump.
#[derive(Debug, Error)]
pub enum DumpError {
    /// An operating system error.
    #[error(transparent)]
    Io(#[from] PathError),
    /// The file is invalid.
    #[error("{path}: {reason}")]
    File {
        /// File path.
        path: String,
        /// Problem and fix.
        reason: String,
    },
    /// A line or Parquet row is invalid.
    #[error("{path}: line {line}: {reason}")]
    Line {
        /// File path.
        path: String,
        /// Line or Parquet row, from 1.
        line: usize,
        /// Problem and fix.
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
