//! Errors from environments, samplers, objectives and learners.

use std::path::Path;

use thiserror::Error;

/// Error of an environment.
#[derive(Debug, Error)]
pub enum EnvError {
    /// A file could not be read.
    #[error("{path}: {source}")]
    Io {
        /// File or folder.
        path: String,
        /// Operating system error.
        source: std::io::Error,
    },
    /// A file has invalid content.
    #[error("{path}: {reason}")]
    File {
        /// Path of the file and, if it is an archive, the entry in it.
        path: String,
        /// What is wrong and, if known, how to fix it.
        reason: String,
    },
    /// Unknown task.
    #[error("unknown task `{0}`: it is not part of this task set")]
    UnknownTask(String),
    /// Unknown split.
    #[error("unknown split `{split}`; this environment has {known}")]
    UnknownSplit {
        /// Requested split.
        split: String,
        /// Existing splits, comma-separated.
        known: String,
    },
    /// `step` or `snapshot` was called before `reset`.
    #[error("the environment has not been reset yet")]
    NotReset,
    /// A saved state belongs to another environment or version.
    #[error("cannot restore the environment: {0}")]
    State(String),
    /// Unsupported operation.
    #[error("{0} is not something that this environment can do")]
    Unsupported(&'static str),
    /// A time limit was exceeded.
    #[error(
        "{operation} took longer than {seconds} s; raise rollout.env_timeout_s, or see why the environment hangs"
    )]
    Timeout {
        /// Operation, for example `step`.
        operation: String,
        /// Limit in seconds.
        seconds: f64,
    },
    /// A failure that a retry may fix.
    #[error("{0}")]
    Transient(String),
    /// Any other failure.
    #[error("{0}")]
    Other(String),
}

impl EnvError {
    /// Creates an I/O error with its path.
    pub fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io { path: path.display().to_string(), source }
    }

    /// Creates an error about a file's content.
    pub fn file(path: &Path, reason: impl Into<String>) -> Self {
        Self::File { path: path.display().to_string(), reason: reason.into() }
    }

    /// Returns true if a retry may succeed.
    pub fn is_transient(&self) -> bool {
        use std::io::ErrorKind;
        match self {
            Self::Transient(_) | Self::Timeout { .. } => true,
            Self::Io { source, .. } => matches!(
                source.kind(),
                ErrorKind::Interrupted
                    | ErrorKind::TimedOut
                    | ErrorKind::WouldBlock
                    | ErrorKind::BrokenPipe
                    | ErrorKind::ConnectionRefused
                    | ErrorKind::ConnectionReset
                    | ErrorKind::ConnectionAborted
                    | ErrorKind::UnexpectedEof
            ),
            Self::File { .. }
            | Self::UnknownTask(_)
            | Self::UnknownSplit { .. }
            | Self::NotReset
            | Self::State(_)
            | Self::Unsupported(_)
            | Self::Other(_) => false,
        }
    }
}

/// Error of a sampler.
#[derive(Debug, Error)]
pub enum SampleError {
    /// The request can never be served.
    #[error("sampling request {request}: {reason}")]
    Request {
        /// Request id.
        request: u64,
        /// Why the request was rejected.
        reason: String,
    },
    /// The backend failed.
    #[error("sampling backend: {0}")]
    Backend(String),
}

/// Error of an objective.
#[derive(Debug, Error)]
pub enum ObjectiveError {
    /// An array has the wrong length.
    #[error("sequence {sequence}: {what} has {found} entries, {expected} expected")]
    Length {
        /// Index of the sequence in the batch.
        sequence: usize,
        /// Array name.
        what: &'static str,
        /// Actual length.
        found: usize,
        /// Expected length.
        expected: usize,
    },
    /// An invalid setting.
    #[error("objective: {0}")]
    Setting(String),
    /// An input is NaN or infinite.
    #[error("sequence {sequence}, token {token}: {what} is {value}, not a finite number")]
    NotFinite {
        /// Index of the sequence in the batch.
        sequence: usize,
        /// Index of the token among the sequence's response tokens.
        token: usize,
        /// Array name.
        what: &'static str,
        /// The value.
        value: f64,
    },
}

/// Error of a learner.
#[derive(Debug, Error)]
pub enum LearnError {
    /// The objective failed.
    #[error(transparent)]
    Objective(#[from] ObjectiveError),
    /// A sequence cannot be trained on.
    #[error("sequence {sequence}: {reason}")]
    Sequence {
        /// Index of the sequence in the batch.
        sequence: usize,
        /// The reason.
        reason: String,
    },
    /// The gradient is NaN or infinite; the weights are unchanged.
    #[error("the gradient norm is {0}: the update was not applied")]
    Gradient(f64),
    /// The learner does not support a model pass that the method needs.
    #[error("learner: the method needs {0}, which this learner does not have")]
    Unsupported(&'static str),
    /// The backend failed.
    #[error("learner: {0}")]
    Backend(String),
    /// A device or remote learner failed; results from before the failure remain valid.
    #[error("learner: {0}")]
    Unavailable(String),
}
