//! Errors of uploads to the hub.

use std::path::Path;

use thiserror::Error;

/// An upload that could not be started or finished. Every message names the file or repository and the fix.
#[derive(Debug, Error)]
pub enum PushError {
    /// A file or folder could not be read.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: String,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The folder is neither a model nor an adapter, or changed during the upload.
    #[error("{path}: {reason}")]
    Folder {
        /// The file or folder.
        path: String,
        /// The fault and how to fix it.
        reason: String,
    },
    /// The repository's name is malformed, or its visibility is not what was asked for.
    #[error("{repository}: {reason}")]
    Repository {
        /// The repository as it was given.
        repository: String,
        /// The fault and how to fix it.
        reason: String,
    },
    /// No token was found, or a variable forbids the network.
    #[error("{0}")]
    Environment(String),
    /// The server answered with an error.
    #[error("{address}: status {status}: {message}{hint}")]
    Status {
        /// The address without its query, which can hold signatures.
        address: String,
        /// The HTTP status.
        status: u16,
        /// The server's message.
        message: String,
        /// The fix after a separator, or empty.
        hint: String,
    },
    /// The server could not be reached, or its response is not what the hub sends.
    #[error("{address}: {reason}; rerun the command to resume")]
    Network {
        /// The address without its query.
        address: String,
        /// The reason.
        reason: String,
    },
}

impl PushError {
    pub(super) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::Io { path, source }
    }

    pub(super) fn folder(path: &Path, reason: impl Into<String>) -> Self {
        Self::Folder { path: path.display().to_string(), reason: reason.into() }
    }
}
