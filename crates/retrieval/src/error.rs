//! Errors from retrievers.

use std::path::{Path, PathBuf};

/// Error from a retriever. The error is cheap to clone, because many callers may get the same
/// error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RetrievalError {
    /// A setting is invalid.
    #[error("{key}: {reason}")]
    Setting {
        /// Setting name.
        key: String,
        /// Cause and fix.
        reason: String,
    },
    /// A file or folder is unreadable, unwritable or invalid.
    #[error("{}: {reason}", path.display())]
    File {
        /// File or folder path.
        path: PathBuf,
        /// Cause and fix.
        reason: String,
    },
    /// A line of a file is not a passage.
    #[error("{}, line {line}: {reason}", path.display())]
    Line {
        /// File path.
        path: PathBuf,
        /// Line, counted from 1.
        line: u64,
        /// Cause and fix.
        reason: String,
    },
    /// The index failed.
    #[error("the index failed: {reason}")]
    Index {
        /// Cause.
        reason: String,
    },
    /// The build was stopped.
    #[error("stopped before it was finished")]
    Interrupted,
    /// The encoder failed.
    #[error("the encoder failed: {reason}")]
    Encoder {
        /// Cause.
        reason: String,
    },
    /// The server was too slow.
    #[error("{server}: no answer within {seconds} s")]
    Timeout {
        /// Server address.
        server: String,
        /// Timeout in seconds.
        seconds: String,
    },
    /// The connection failed or closed.
    #[error("{server}: no connection: {reason}")]
    Unreachable {
        /// Server address.
        server: String,
        /// Cause.
        reason: String,
    },
    /// The status was not 200.
    #[error("{server}: status {status}: {body}")]
    Status {
        /// Server address.
        server: String,
        /// HTTP status code.
        status: u16,
        /// Start of the response.
        body: String,
    },
    /// The response violates the protocol.
    #[error("{server}: the answer is not one of the protocol: {reason}")]
    Answer {
        /// Server address.
        server: String,
        /// Cause.
        reason: String,
    },
}

impl RetrievalError {
    pub(crate) fn file(path: &Path, error: &std::io::Error) -> Self {
        Self::File { path: path.to_owned(), reason: error.to_string() }
    }

    pub(crate) fn damaged(path: &Path, problem: &str) -> Self {
        Self::File {
            path: path.to_owned(),
            reason: format!("damaged: {problem}; delete the folder and build it again"),
        }
    }

    /// Returns true if a retry may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Setting { .. }
            | Self::File { .. }
            | Self::Line { .. }
            | Self::Index { .. }
            | Self::Interrupted
            | Self::Encoder { .. } => false,
            Self::Timeout { .. } | Self::Unreachable { .. } | Self::Answer { .. } => true,
            Self::Status { status, .. } => turnwise_core::is_transient_status(*status),
        }
    }

    /// Returns true if the query itself may have caused the error. Status 500 is included, because
    /// servers return it if a search fails.
    pub fn may_lie_in_a_query(&self) -> bool {
        !self.is_transient() || matches!(self, Self::Status { status: 500, .. })
    }
}

impl From<crate::lucene::SearchError> for RetrievalError {
    fn from(error: crate::lucene::SearchError) -> Self {
        use crate::lucene::SearchError;
        match error {
            SearchError::Io(error) => Self::file(error.path.as_ref(), &error.source),
            // Other messages already name path and fix.
            error => Self::Index { reason: error.to_string() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_get_better_is_not_tried_again() {
        let status = |status| RetrievalError::Status { server: "a".into(), status, body: String::new() };
        assert!([408, 429, 500, 503].into_iter().all(|code| status(code).is_transient()));
        assert!(![301, 400, 404, 422].into_iter().any(|code| status(code).is_transient()));
        assert!(RetrievalError::Timeout { server: "a".into(), seconds: "2".into() }.is_transient());
        assert!(!RetrievalError::Index { reason: "broken".into() }.is_transient());
    }
}
