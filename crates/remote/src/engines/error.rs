//! Errors of inference servers.

use thiserror::Error;
use turnwise_files::PathError;
use turnwise_train::TrainError;

use crate::http::NoClient;
use crate::thread::ThreadEnded;

/// Error from setting up or updating servers. Messages name a server by its index in
/// `rollout.engine.urls` and contain neither addresses nor keys.
#[derive(Debug, Error)]
pub enum EngineError {
    /// Invalid setting.
    #[error("rollout.engine.{key}: {reason}")]
    Setting {
        /// Config key.
        key: &'static str,
        /// Problem and fix.
        reason: String,
    },
    /// Unusable server.
    #[error("rollout.engine.urls[{server}]: {reason}")]
    Server {
        /// Server index.
        server: usize,
        /// Problem and, if known, the missing server flag.
        reason: String,
    },
    /// No server can handle the request.
    #[error("inference servers: {0}")]
    Backend(String),
    /// The folder of weight versions cannot be read or written.
    #[error(transparent)]
    Io(#[from] PathError),
    /// A weight version cannot be written.
    #[error(transparent)]
    Model(#[from] turnwise_model::ModelError),
}

impl EngineError {
    pub(crate) fn no_thread(error: &std::io::Error) -> Self {
        Self::Backend(format!("no thread for requests: {error}"))
    }

    pub(crate) fn setting(key: &'static str, reason: impl Into<String>) -> Self {
        Self::Setting { key, reason: reason.into() }
    }
}

impl From<NoClient> for EngineError {
    fn from(error: NoClient) -> Self {
        match error {
            NoClient::Key(reason) => Self::setting("api_key_env", reason),
            NoClient::Build(reason) => Self::Backend(reason),
        }
    }
}

impl From<ThreadEnded> for EngineError {
    fn from(error: ThreadEnded) -> Self {
        Self::Backend(error.to_string())
    }
}

impl From<EngineError> for TrainError {
    fn from(error: EngineError) -> Self {
        let text = error.to_string();
        match error {
            EngineError::Setting { key, reason } => {
                Self::Config { origin: format!("rollout.engine.{key}"), reason }
            }
            EngineError::Server { server, reason } => {
                Self::Config { origin: format!("rollout.engine.urls[{server}]"), reason }
            }
            EngineError::Io(error) => Self::Io(error),
            EngineError::Model(error) => Self::Model(error),
            EngineError::Backend(_) => Self::Sample(turnwise_core::SampleError::Backend(text)),
        }
    }
}
