//! Errors of a judge. A request that fails is none, as long as they are few: see [`super::JudgeMetrics`].

use std::path::Path;

use thiserror::Error;

/// A judge that cannot be set up, or that answers too seldom.
#[derive(Debug, Error)]
pub enum JudgeError {
    /// A setting that cannot work.
    #[error("decomposer.{key}: {reason}")]
    Setting {
        /// The key of [`super::JudgeConfig`].
        key: &'static str,
        /// The problem and how to fix it.
        reason: String,
    },
    /// Settings outside of their ranges.
    #[error(transparent)]
    Settings(#[from] turnwise_settings::SettingsError),
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// A template that cannot be used.
    #[error("{path}: {reason}")]
    Template {
        /// The file.
        path: String,
        /// The problem and how to fix it.
        reason: String,
    },
    /// The service does not answer, or not under these settings.
    #[error(
        "the judge at {endpoint} does not answer for the model {model:?} ({reason}): start it, or correct \
         decomposer.endpoint, decomposer.model or decomposer.api_key_env; decomposer.call_budget = 0 asks nothing and takes \
         answers from the cache alone"
    )]
    Unready {
        /// Base address of the service.
        endpoint: String,
        /// Name of the model that was asked for.
        model: String,
        /// The last failure.
        reason: String,
    },
    /// Too many questions stayed without an answer.
    #[error(
        "the judge at {endpoint} left {failed} of the last {asked} questions without scores ({reason}): start it, or \
         correct decomposer.endpoint, and resume, which asks for no scores twice; decomposer.max_failed_share says how many \
         may stay without an answer"
    )]
    Unanswered {
        /// Base address of the service.
        endpoint: String,
        /// Questions without an answer.
        failed: usize,
        /// Questions asked.
        asked: usize,
        /// The last failure.
        reason: String,
    },
}

impl JudgeError {
    pub(super) fn setting(key: &'static str, reason: impl Into<String>) -> Self {
        Self::Setting { key, reason: reason.into() }
    }

    pub(super) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::Io { path, source }
    }
}
