//! Errors from uploads to the hub.

use std::path::Path;

use thiserror::Error;
use turnwise_files::PathError;

/// Error from starting or finishing an upload. Messages name the file or repository and say how to
/// fix the problem.
#[derive(Debug, Error)]
pub enum PushError {
    /// A file or folder could not be read.
    #[error(transparent)]
    Io(#[from] PathError),
    /// The folder is neither a model nor an adapter, or changed during the upload.
    #[error("{path}: {reason}")]
    Folder {
        /// Path of the file or folder.
        path: String,
        /// The problem and how to fix it.
        reason: String,
    },
    /// The repository name is malformed, or the repository's visibility differs from the requested
    /// one.
    #[error("{repository}: {reason}")]
    Repository {
        /// The repository name as given.
        repository: String,
        /// The problem and how to fix it.
        reason: String,
    },
    /// No token was found, or an environment variable forbids network access.
    #[error("{0}")]
    Environment(String),
    /// The server returned an error.
    #[error("{address}: status {status}: {message}{hint}")]
    Status {
        /// The URL without its query, which may contain a signature.
        address: String,
        /// The HTTP status.
        status: u16,
        /// The server's message.
        message: String,
        /// A suggested fix, starting with a separator; may be empty.
        hint: String,
    },
    /// The server could not be reached, or sent an invalid response.
    #[error("{address}: {reason}; rerun the command to resume")]
    Network {
        /// The URL without its query.
        address: String,
        /// The reason.
        reason: String,
    },
}

impl PushError {
    pub(super) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::Io(PathError { path, source })
    }

    pub(super) fn folder(path: &Path, reason: impl Into<String>) -> Self {
        Self::Folder { path: path.display().to_string(), reason: reason.into() }
    }
}
