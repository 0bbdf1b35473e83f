//! Reasons why a search came to nothing.

use std::path::{Path, PathBuf};

/// Error of a retriever. Clones are cheap: a failed request may belong to many callers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RetrievalError {
    /// A setting that cannot work.
    #[error("{key}: {reason}")]
    Setting {
        /// The setting.
        key: String,
        /// The problem and how to fix it.
        reason: String,
    },
    /// A file or folder could not be read or written, or holds something else than it should.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The problem and how to fix it.
        reason: String,
    },
    /// A line of a file is not a passage.
    #[error("{}, line {line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: u64,
        /// The problem and how to fix it.
        reason: String,
    },
    /// The index gave no answer.
    #[error("the index failed: {reason}")]
    Index {
        /// The problem.
        reason: String,
    },
    /// Building was stopped before it was finished.
    #[error("stopped before it was finished")]
    Interrupted,
    /// The encoder gave no vector for a text.
    #[error("the encoder failed: {reason}")]
    Encoder {
        /// The problem.
        reason: String,
    },
    /// No answer in time.
    #[error("{server}: no answer within {seconds} s")]
    Timeout {
        /// Address of the server.
        server: String,
        /// Time that was given.
        seconds: String,
    },
    /// The connection failed or was closed.
    #[error("{server}: no connection: {reason}")]
    Unreachable {
        /// Address of the server.
        server: String,
        /// The problem.
        reason: String,
    },
    /// Another status than 200.
    #[error("{server}: status {status}: {body}")]
    Status {
        /// Address of the server.
        server: String,
        /// The HTTP status.
        status: u16,
        /// The beginning of what the server said.
        body: String,
    },
    /// An answer that violates the protocol.
    #[error("{server}: the answer is not one of the protocol: {reason}")]
    Answer {
        /// Address of the server.
        server: String,
        /// The problem.
        reason: String,
    },
}

impl RetrievalError {
    pub(crate) fn file(path: &Path, error: &std::io::Error) -> Self {
        Self::File { path: path.to_owned(), reason: error.to_string() }
    }

    /// Returns a file or folder that does not hold what it should.
    pub(crate) fn damaged(path: &Path, problem: &str) -> Self {
        Self::File {
            path: path.to_owned(),
            reason: format!("damaged: {problem}; delete the folder and build it again"),
        }
    }

    /// Returns true if the same search may succeed when it is tried again.
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

    /// Returns true if one of the queries may be the reason, and not a retriever that cannot be reached
    /// or has too much to do: a server answers 500 where its search broke down.
    pub fn may_lie_in_a_query(&self) -> bool {
        !self.is_transient() || matches!(self, Self::Status { status: 500, .. })
    }
}

impl From<crate::lucene::SearchError> for RetrievalError {
    fn from(error: crate::lucene::SearchError) -> Self {
        use crate::lucene::SearchError;
        match error {
            SearchError::Io { path, source } => Self::file(&path, &source),
            // The others say where and how to fix it in their own words.
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
