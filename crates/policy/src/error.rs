//! Errors of finding and loading a policy.

use std::path::Path;

use thiserror::Error;

/// A policy that cannot be found or loaded. Every message names the file and what to change.
#[derive(Debug, Error)]
pub enum PolicyError {
    /// A file or folder could not be read.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: String,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// A file or folder is not what it should be.
    #[error("{path}: {reason}")]
    File {
        /// The file, the folder, or the name of a model of the hub.
        path: String,
        /// The fault and how to fix it.
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
        move |source| Self::Io { path, source }
    }
}
