//! Errors from finding and loading a policy.

use std::path::Path;

use thiserror::Error;
use turnwise_files::PathError;

/// Error from finding or loading a policy; messages name the file and the fix.
#[derive(Debug, Error)]
pub enum PolicyError {
    /// A file or folder could not be read.
    #[error(transparent)]
    Io(#[from] PathError),
    /// Invalid file or folder.
    #[error("{path}: {reason}")]
    File {
        /// Path, or name of a hub model.
        path: String,
        /// Problem and fix.
        reason: String,
    },
    /// Unreadable weights.
    #[error(transparent)]
    Model(#[from] turnwise_model::ModelError),
    /// Unreadable tokenizer.
    #[error(transparent)]
    Text(#[from] turnwise_text::TextError),
}

impl PolicyError {
    pub(crate) fn file(path: &Path, reason: impl Into<String>) -> Self {
        Self::File { path: path.display().to_string(), reason: reason.into() }
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io(PathError::new(path, source))
    }
}
