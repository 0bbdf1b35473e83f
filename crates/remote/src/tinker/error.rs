//! Training service errors, without addresses or keys.

use thiserror::Error;
use turnwise_core::{LearnError, SampleError};
use turnwise_train::TrainError;

use crate::http::NoClient;

/// Error from a Tinker-compatible service.
#[derive(Debug, Error)]
pub enum TinkerError {
    /// Invalid setting.
    #[error("policy.learner.{key}: {reason}")]
    Setting {
        /// Config key.
        key: &'static str,
        /// Problem and fix.
        reason: String,
    },
    /// No reply within `policy.learner.timeout_s`.
    #[error(
        "the training service gave no result for {what} within {seconds} s ({reason}); see the service's log, or raise \
         policy.learner.timeout_s"
    )]
    NoAnswer {
        /// Request name.
        what: &'static str,
        /// Timeout in seconds.
        seconds: f64,
        /// Last failure.
        reason: String,
    },
    /// The connection was lost after a request that must not be repeated.
    #[error(
        "the connection to the training service broke off during {what} ({reason}), and whether it was carried out is \
         not known; go on from the last checkpoint with `turnwise train --resume`"
    )]
    Interrupted {
        /// Request name.
        what: &'static str,
        /// Cause.
        reason: String,
    },
    /// The service rejected a request or failed.
    #[error("the training service refused {what} (status {status}): {detail}")]
    Refused {
        /// Request name.
        what: &'static str,
        /// HTTP status.
        status: u16,
        /// The service's message, shortened.
        detail: String,
    },
    /// The service dropped the session.
    #[error(
        "the training service no longer knows this session: it was restarted, or heard nothing for too long; go on from \
         the last checkpoint with `turnwise train --resume`"
    )]
    SessionExpired,
    /// A reply violates the API.
    #[error("the training service's answer to {what} cannot be used: {reason}")]
    Protocol {
        /// Request name.
        what: &'static str,
        /// The problem.
        reason: String,
    },
    /// The service's averaging of losses could not be determined.
    #[error("the training service's reduction of losses could not be measured: {0}")]
    Calibration(String),
    /// A downloaded or checkpoint file is invalid.
    #[error("{path}: {reason}")]
    File {
        /// File path.
        path: String,
        /// Problem and fix.
        reason: String,
    },
}

impl TinkerError {
    pub(crate) fn no_thread(error: &std::io::Error) -> Self {
        Self::Setting { key: "url", reason: format!("no thread can be started for the service: {error}") }
    }
}

impl From<NoClient> for TinkerError {
    fn from(error: NoClient) -> Self {
        match error {
            NoClient::Key(reason) => Self::Setting { key: "api_key_env", reason },
            NoClient::Build(reason) => {
                Self::Setting { key: "url", reason: format!("no connection can be set up: {reason}") }
            }
        }
    }
}

impl From<TinkerError> for LearnError {
    fn from(error: TinkerError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl From<TinkerError> for SampleError {
    fn from(error: TinkerError) -> Self {
        Self::Backend(error.to_string())
    }
}

impl From<TinkerError> for TrainError {
    fn from(error: TinkerError) -> Self {
        match error {
            TinkerError::Setting { key, reason } => {
                Self::Config { origin: format!("policy.learner.{key}"), reason }
            }
            TinkerError::File { path, reason } => Self::File { path, reason },
            other => Self::Learn(other.into()),
        }
    }
}

/// Removes control characters and cuts to 400 characters.
pub(crate) fn shortened(text: &str) -> String {
    let clean: String = text.chars().filter(|letter| !letter.is_control() || *letter == '\n').collect();
    let clean = clean.trim();
    match clean.char_indices().nth(400) {
        Some((end, _)) => format!("{} ...", &clean[..end]),
        None => clean.to_owned(),
    }
}
