//! Failed requests to environment servers.

use thiserror::Error;
use turnwise_core::EnvError;

use crate::http::{HttpError, NoClient};
use crate::thread::ThreadEnded;

/// Error from an environment server. Messages name the server by its index in `env.urls`, without
/// address or key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum ServerError {
    #[error("env.{key}: {reason}")]
    Setting {
        key: &'static str,
        /// Problem and fix.
        reason: String,
    },
    /// The server is unreachable, or the connection, and thus the episode, was lost.
    #[error("{0}")]
    Lost(String),
    /// The server has no room for an episode.
    #[error("{0}")]
    Full(String),
    /// The server returned an error or invalid reply.
    #[error("{0}")]
    Answer(String),
}

impl ServerError {
    pub(crate) fn setting(key: &'static str, reason: impl Into<String>) -> Self {
        Self::Setting { key, reason: reason.into() }
    }

    pub(crate) fn no_thread(error: &std::io::Error) -> Self {
        Self::Lost(format!("no thread for requests: {error}"))
    }

    pub(crate) fn of_server(self, server: usize) -> Self {
        let named = |text: String| format!("env.urls[{server}]: {text}");
        match self {
            Self::Setting { .. } => self,
            Self::Lost(text) => Self::Lost(named(text)),
            Self::Full(text) => Self::Full(named(text)),
            Self::Answer(text) => Self::Answer(named(text)),
        }
    }

    /// Converts the error of a failed reset, which is transient if the episode may start later or
    /// on another server.
    pub(crate) fn of_reset(self) -> EnvError {
        match self {
            Self::Lost(text) | Self::Full(text) => EnvError::Transient(text),
            Self::Setting { .. } | Self::Answer(_) => self.into(),
        }
    }
}

/// Errors while an environment is opened or during a step are permanent; for resets, see
/// `ServerError::of_reset`.
impl From<ServerError> for EnvError {
    fn from(error: ServerError) -> Self {
        Self::Other(error.to_string())
    }
}

impl From<ThreadEnded> for ServerError {
    fn from(error: ThreadEnded) -> Self {
        Self::Lost(error.to_string())
    }
}

impl From<NoClient> for ServerError {
    fn from(error: NoClient) -> Self {
        match error {
            NoClient::Key(reason) => Self::setting("api_key_env", reason),
            NoClient::Build(reason) => Self::Lost(reason),
        }
    }
}

impl From<HttpError> for ServerError {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::Unreachable(reason) => {
                Self::Lost(format!("no connection ({reason}); is the server up?"))
            }
            HttpError::Broken(reason) => Self::Lost(format!("the connection broke: {reason}")),
            HttpError::Timeout => {
                Self::Lost("no answer in time; raise env.timeout_s if it needs longer".into())
            }
            HttpError::TooLarge(limit) => Self::Answer(format!(
                "an answer of more than {limit} bytes; raise env.max_message_bytes if it is sound"
            )),
        }
    }
}
