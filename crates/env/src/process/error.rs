//! Failures of requests to a world's program.

/// Failure of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// The program could not be started.
    #[error("env.command: cannot start `{command}`: {reason}")]
    Start {
        /// The command.
        command: String,
        /// The operating system's reason.
        reason: String,
    },
    /// The program's answer to `hello` is not one to continue with.
    #[error("env.command: `{command}` is no world that can be played: {reason}")]
    Handshake {
        /// The command.
        command: String,
        /// The fault and how to fix it.
        reason: String,
    },
    /// The program was killed or ended by itself; every episode in it is lost.
    #[error("the world's program was lost: {reason}{stderr}")]
    Lost {
        /// The reason.
        reason: String,
        /// The last lines of its stderr, with an introduction; may be empty.
        stderr: String,
    },
    /// The program answered with an error.
    #[error("the world's program: {message}{traceback}")]
    Answer {
        /// True if trying again may help.
        transient: bool,
        /// Its message.
        message: String,
        /// Where it happened, with a line break before it, or nothing.
        traceback: String,
    },
    /// The program's answer does not have the form it should have.
    #[error("the world's program answered `{op}` with something else: {reason}")]
    Form {
        /// The request's name.
        op: &'static str,
        /// The fault of the answer.
        reason: String,
    },
}

impl ProcessError {
    /// Returns true if the same request may succeed if it is repeated. A step of a lost episode cannot: see
    /// [`ProcessError::loses_episode`].
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::Answer { transient: true, .. })
    }

    /// Returns true if the episode that the request was about exists no more.
    pub fn loses_episode(&self) -> bool {
        !matches!(self, Self::Answer { transient: true, .. })
    }
}
