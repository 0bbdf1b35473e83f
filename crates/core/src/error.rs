//! One flat error type per boundary. Every message names what was wrong and how to fix it.

use thiserror::Error;

/// Error while a world is loaded, reset, stepped or restored.
#[derive(Debug, Error)]
pub enum EnvError {
    /// A file that belongs to the environment could not be read.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: String,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A file was read but is not what it should be.
    #[error("{path}: {reason}")]
    File {
        /// The file, and the entry inside it where it is an archive.
        path: String,
        /// The problem with it and, where known, how to fix it.
        reason: String,
    },
    /// A task was asked for that the task set does not have.
    #[error("unknown task `{0}`: it is not part of this task set")]
    UnknownTask(String),
    /// A split was asked for that the task set does not have.
    #[error("unknown split `{split}`; this environment has {known}")]
    UnknownSplit {
        /// The split asked for.
        split: String,
        /// The splits there are, comma separated.
        known: String,
    },
    /// `step` or `snapshot` was called before `reset`.
    #[error("the environment has not been reset yet")]
    NotReset,
    /// A saved state does not belong to this environment or version.
    #[error("cannot restore the environment: {0}")]
    State(String),
    /// The world has no such capability.
    #[error("{0} is not something that this environment can do")]
    Unsupported(&'static str),
    /// The world took longer than it may.
    #[error(
        "{operation} took longer than {seconds} s; raise rollout.env_timeout_s, or see why the environment hangs"
    )]
    Timeout {
        /// The operation that was waited for, for example `step`.
        operation: String,
        /// The limit.
        seconds: f64,
    },
    /// The world failed in a way that need not happen again; the text says how.
    #[error("{0}")]
    Transient(String),
    /// Anything else; the text says what and where.
    #[error("{0}")]
    Other(String),
}

impl EnvError {
    /// True where trying again may help: the world or the way to it failed, and nothing says that it will again.
    /// Every other error is fatal: the same call would end in it again.
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

/// Error while responses are sampled from a policy.
#[derive(Debug, Error)]
pub enum SampleError {
    /// The request can never be served.
    #[error("sampling request {request}: {reason}")]
    Request {
        /// Number of the request, as its sender gave it.
        request: u64,
        /// The reason of the refusal.
        reason: String,
    },
    /// The backend failed.
    #[error("sampling backend: {0}")]
    Backend(String),
}

/// Error inside an objective.
#[derive(Debug, Error)]
pub enum ObjectiveError {
    /// The numbers handed in do not fit the batch the objective was built for.
    #[error("sequence {sequence}: {what} has {found} entries, {expected} expected")]
    Length {
        /// Index into the batch.
        sequence: usize,
        /// Name of the array.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The length that the batch asks for.
        expected: usize,
    },
    /// A setting that cannot work.
    #[error("objective: {0}")]
    Setting(String),
    /// A number that is not finite came in.
    #[error("sequence {sequence}, token {token}: {what} is {value}, not a finite number")]
    NotFinite {
        /// Index into the batch.
        sequence: usize,
        /// Index among the sequence's response tokens.
        token: usize,
        /// Name of the array.
        what: &'static str,
        /// The number.
        value: f64,
    },
}

/// Error while weights are trained.
#[derive(Debug, Error)]
pub enum LearnError {
    /// The objective refused.
    #[error(transparent)]
    Objective(#[from] ObjectiveError),
    /// A sequence that cannot be trained on.
    #[error("sequence {sequence}: {reason}")]
    Sequence {
        /// Index into the batch.
        sequence: usize,
        /// The reason why not.
        reason: String,
    },
    /// The gradient is not a finite number, so the weights were left as they were.
    #[error("the gradient norm is {0}: the update was not applied")]
    Gradient(f64),
    /// The backend failed.
    #[error("learner: {0}")]
    Backend(String),
    /// A device, or a learner that is elsewhere, failed or did not answer, which says nothing about the numbers of the run.
    #[error("learner: {0}")]
    Unavailable(String),
}
