//! Errors from finding and loading a policy.

use std::path::Path;

use thiserror::Error;
use turnwise_files::PathError;

/// Error from finding or loading a policy. Messages name the file and say how to fix the problem.
#[derive(Debug, Error)]
pub enum PolicyError {
    /// A file or folder could not be read.
    #[error(transparent)]
    Io(#[from] PathError),
    /// A file or folder is invalid.
    #[error("{path}: {reason}")]
    File {
        /// Path of the file or folder, or the name of a hub model.
        path: String,
        /// The problem and how to fix it.
        reason: String,
    },
    /// The weights could not be read.
    #[error(transparent)]
    Model(#[from] turnwise_model::ModelError),
    /// The tokenizer could not be read.
    #[error(transparent)]
    Text(#[from] turnwise_text::TextError),
}

impl PolicyError {
    pub(crate) fn file(path: &Path, reason: impl Into<String>) -> Self {
        Self::File { path: path.display().to_string(), reason: reason.into() }
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::Io(PathError { path, source })
    }
}
