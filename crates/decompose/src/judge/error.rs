//! Errors of a judge. Failed requests are only counted ([`super::JudgeMetrics`]), unless there are
//! too many.

use std::path::Path;

use thiserror::Error;
use turnwise_files::PathError;

/// Why a judge cannot be used.
#[derive(Debug, Error)]
pub enum JudgeError {
    /// Invalid setting.
    #[error("decomposer.{key}: {reason}")]
    Setting {
        /// Key of [`super::JudgeConfig`].
        key: &'static str,
        /// Cause and fix.
        reason: String,
    },
    /// Settings out of range.
    #[error(transparent)]
    Settings(#[from] turnwise_settings::SettingsError),
    /// A file could not be read or written.
    #[error(transparent)]
    Io(#[from] PathError),
    /// Invalid template.
    #[error("{path}: {reason}")]
    Template {
        /// File path.
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
        /// Base URL.
        endpoint: String,
        /// Model name.
        model: String,
        /// Last failure.
        reason: String,
    },
    /// Too many unanswered questions.
    #[error(
        "the judge at {endpoint} left {failed} of the last {asked} questions without scores ({reason}): start it, or \
         correct decomposer.endpoint, and resume, which asks for no scores twice; decomposer.max_failed_share says how many \
         may stay without an answer"
    )]
    Unanswered {
        /// Base URL.
        endpoint: String,
        /// Number of questions that were not answered.
        failed: usize,
        /// Number of questions sent.
        asked: usize,
        /// Last failure.
        reason: String,
    },
}

impl JudgeError {
    pub(super) fn setting(key: &'static str, reason: impl Into<String>) -> Self {
        Self::Setting { key, reason: reason.into() }
    }

    pub(super) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io(PathError::new(path, source))
    }
}
