//! Errors from requests to an external environment program.

/// Failure of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// The program could not be started.
    #[error("env.command: cannot start `{command}`: {reason}")]
    Start {
        /// The configured command.
        command: String,
        /// Reason given by the operating system.
        reason: String,
    },
    /// The program's response to `hello` is invalid.
    #[error("env.command: `{command}` is no world that can be played: {reason}")]
    Handshake {
        /// The configured command.
        command: String,
        /// What is wrong and how to fix it.
        reason: String,
    },
    /// The program exited or was killed, so all its episodes are lost.
    #[error("the world's program was lost: {reason}{stderr}")]
    Lost {
        /// Why the program is no longer available.
        reason: String,
        /// The last lines of the program's stderr under a heading, or empty.
        stderr: String,
    },
    /// The program responded with an error.
    #[error("the world's program: {message}{traceback}")]
    Answer {
        /// Whether a retry may succeed.
        transient: bool,
        /// The program's error message.
        message: String,
        /// The program's traceback with a leading newline, or empty.
        traceback: String,
    },
    /// The program's response does not have the expected format.
    #[error("the world's program answered `{op}` with something else: {reason}")]
    Form {
        /// Name of the request.
        op: &'static str,
        /// What is wrong.
        reason: String,
    },
}

impl ProcessError {
    /// Returns true if retrying the request may succeed. Steps of a lost episode cannot be retried;
    /// see [`ProcessError::loses_episode`].
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::Answer { transient: true, .. })
    }

    /// Returns true if the error means that the episode is lost.
    pub(crate) fn loses_episode(&self) -> bool {
        !matches!(self, Self::Answer { transient: true, .. })
    }
}
