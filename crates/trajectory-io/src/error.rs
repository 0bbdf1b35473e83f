//! Errors from reading and writing dumps.

use std::path::Path;

use thiserror::Error;

/// Error from reading, using or writing a dump.
#[derive(Debug, Error)]
pub enum DumpError {
    /// Input or output failed.
    #[error("{path}: {source}")]
    Io {
        /// File path.
        path: String,
        /// Operating system error.
        source: std::io::Error,
    },
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
        Self::Io { path: path.display().to_string(), source }
    }

    pub(crate) fn file(path: &Path, reason: impl Into<String>) -> Self {
        Self::File { path: path.display().to_string(), reason: reason.into() }
    }

    pub(crate) fn line(path: &Path, line: usize, reason: impl Into<String>) -> Self {
        Self::Line { path: path.display().to_string(), line, reason: reason.into() }
    }
}
