//! Errors from retrievers.

use std::path::{Path, PathBuf};

/// Error from a retriever. Clones are cheap, because one failed request may belong to many callers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RetrievalError {
    /// A setting is invalid.
    #[error("{key}: {reason}")]
    Setting {
        /// Name of the setting.
        key: String,
        /// Cause and fix.
        reason: String,
    },
    /// A file or folder cannot be read or written, or has invalid content.
    #[error("{}: {reason}", path.display())]
    File {
        /// Path of the file or folder.
        path: PathBuf,
        /// Cause and fix.
        reason: String,
    },
    /// A line of a file is not a passage.
    #[error("{}, line {line}: {reason}", path.display())]
    Line {
        /// Path of the file.
        path: PathBuf,
        /// Line number, counted from 1.
        line: u64,
        /// Cause and fix.
        reason: String,
    },
    /// The index failed.
    #[error("the index failed: {reason}")]
    Index {
        /// Cause of the failure.
        reason: String,
    },
    /// The build was stopped before it was complete.
    #[error("stopped before it was finished")]
    Interrupted,
    /// The encoder failed on a text.
    #[error("the encoder failed: {reason}")]
    Encoder {
        /// Cause of the failure.
        reason: String,
    },
    /// The server did not respond in time.
    #[error("{server}: no answer within {seconds} s")]
    Timeout {
        /// Address of the server.
        server: String,
        /// Timeout in seconds.
        seconds: String,
    },
    /// The connection failed or was closed.
    #[error("{server}: no connection: {reason}")]
    Unreachable {
        /// Address of the server.
        server: String,
        /// Cause of the failure.
        reason: String,
    },
    /// The server returned a status other than 200.
    #[error("{server}: status {status}: {body}")]
    Status {
        /// Address of the server.
        server: String,
        /// HTTP status code.
        status: u16,
        /// Start of the server's response.
        body: String,
    },
    /// The response does not follow the protocol.
    #[error("{server}: the answer is not one of the protocol: {reason}")]
    Answer {
        /// Address of the server.
        server: String,
        /// Cause of the failure.
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

    /// Returns true if retrying the search may succeed.
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

    /// Returns true if the query itself may have caused the error, rather than an unreachable or
    /// overloaded retriever. Servers return 500 if their search fails.
    pub fn may_lie_in_a_query(&self) -> bool {
        !self.is_transient() || matches!(self, Self::Status { status: 500, .. })
    }
}

impl From<crate::lucene::SearchError> for RetrievalError {
    fn from(error: crate::lucene::SearchError) -> Self {
        use crate::lucene::SearchError;
        match error {
            SearchError::Io(error) => Self::file(error.path.as_ref(), &error.source),
            // Other messages already name the path and the fix.
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
