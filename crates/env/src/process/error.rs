//! Errors of an external environment program.

/// A request's failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// The program did not start.
    #[error("env.command: cannot start `{command}`: {reason}")]
    Start {
        /// Configured command.
        command: String,
        /// The operating system's error.
        reason: String,
    },
    /// The response to `hello` is invalid.
    #[error("env.command: `{command}` is no world that can be played: {reason}")]
    Handshake {
        /// Configured command.
        command: String,
        /// What is wrong and how to fix it.
        reason: String,
    },
    /// The program ended, so its episodes are lost.
    #[error("the world's program was lost: {reason}{stderr}")]
    Lost {
        /// Why it ended.
        reason: String,
        /// The last lines of the program's stderr, with a heading; empty if it wrote none.
        stderr: String,
    },
    /// The program returned an error.
    #[error("the world's program: {message}{traceback}")]
    Answer {
        /// Whether a retry may succeed.
        transient: bool,
        /// The program's message.
        message: String,
        /// A newline and the program's traceback; empty if it sent no traceback.
        traceback: String,
    },
    /// The response has the wrong format.
    #[error("the world's program answered `{op}` with something else: {reason}")]
    Form {
        /// Request name.
        op: &'static str,
        /// What is wrong.
        reason: String,
    },
}

impl ProcessError {
    /// Returns true if a retry of the request may succeed. A step cannot be retried if the episode
    /// is lost ([`ProcessError::loses_episode`]), even if this method returns true.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::Answer { transient: true, .. })
    }

    /// Returns true if the episode is lost.
    pub(crate) fn loses_episode(&self) -> bool {
        !matches!(self, Self::Answer { transient: true, .. })
    }
}
