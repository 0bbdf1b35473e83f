//! Errors from a judge. A few failed requests are not an error: see [`super::JudgeMetrics`].

use std::path::Path;

use thiserror::Error;
use turnwise_files::PathError;

/// Error if a judge cannot be set up or leaves too many questions unanswered.
#[derive(Debug, Error)]
pub enum JudgeError {
    /// A setting is invalid.
    #[error("decomposer.{key}: {reason}")]
    Setting {
        /// Key of [`super::JudgeConfig`].
        key: &'static str,
        /// Cause and fix.
        reason: String,
    },
    /// Settings are out of range.
    #[error(transparent)]
    Settings(#[from] turnwise_settings::SettingsError),
    /// A file could not be read or written.
    #[error(transparent)]
    Io(#[from] PathError),
    /// A template is invalid.
    #[error("{path}: {reason}")]
    Template {
        /// Path of the file.
        path: String,
        /// Cause and fix.
        reason: String,
    },
    /// The service does not respond or rejects the settings.
    #[error(
        "the judge at {endpoint} does not answer for the model {model:?} ({reason}): start it, or correct \
         decomposer.endpoint, decomposer.model or decomposer.api_key_env; decomposer.call_budget = 0 asks nothing and takes \
         answers from the cache alone"
    )]
    Unready {
        /// Base URL of the service.
        endpoint: String,
        /// Name of the requested model.
        model: String,
        /// Reason for the last failure.
        reason: String,
    },
    /// Too many questions were not answered.
    #[error(
        "the judge at {endpoint} left {failed} of the last {asked} questions without scores ({reason}): start it, or \
         correct decomposer.endpoint, and resume, which asks for no scores twice; decomposer.max_failed_share says how many \
         may stay without an answer"
    )]
    Unanswered {
        /// Base URL of the service.
        endpoint: String,
        /// Questions without an answer.
        failed: usize,
        /// Questions sent.
        asked: usize,
        /// Reason for the last failure.
        reason: String,
    },
}

impl JudgeError {
    pub(super) fn setting(key: &'static str, reason: impl Into<String>) -> Self {
        Self::Setting { key, reason: reason.into() }
    }

    pub(super) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::Io(PathError { path, source })
    }
}
