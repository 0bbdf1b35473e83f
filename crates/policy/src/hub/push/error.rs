//! Errors from uploads to the hub.

use std::path::Path;

use thiserror::Error;
use turnwise_files::PathError;

/// Error from an upload; messages name the file or repository and the fix.
#[derive(Debug, Error)]
pub enum PushError {
    /// A file or folder could not be read.
    #[error(transparent)]
    Io(#[from] PathError),
    /// Folder that is neither a model nor an adapter, or a file that changed during the upload.
    #[error("{path}: {reason}")]
    Folder {
        /// Path.
        path: String,
        /// Problem and fix.
        reason: String,
    },
    /// Malformed name of a repository, or a repository whose visibility is not the requested one.
    #[error("{repository}: {reason}")]
    Repository {
        /// Repository as given.
        repository: String,
        /// Problem and fix.
        reason: String,
    },
    /// Missing token, or an environment variable that forbids network access.
    #[error("{0}")]
    Environment(String),
    /// Error response.
    #[error("{address}: status {status}: {message}{hint}")]
    Status {
        /// URL without its query, which may contain a signature.
        address: String,
        /// HTTP status.
        status: u16,
        /// Server message.
        message: String,
        /// Suggested fix with a leading separator; may be empty.
        hint: String,
    },
    /// Unreachable server or invalid response.
    #[error("{address}: {reason}; rerun the command to resume")]
    Network {
        /// URL without its query.
        address: String,
        /// Reason.
        reason: String,
    },
}

impl PushError {
    pub(super) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io(PathError::new(path, source))
    }

    pub(super) fn folder(path: &Path, reason: impl Into<String>) -> Self {
        Self::Folder { path: path.display().to_string(), reason: reason.into() }
    }
}
