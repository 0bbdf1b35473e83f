//! Errors of setting a judge up. A judge that runs has none: see [`super::JudgeMetrics`].

use std::path::Path;

use thiserror::Error;

/// Why there is no judge.
#[derive(Debug, Error)]
pub enum JudgeError {
    /// A setting that cannot work.
    #[error("judge.{key}: {reason}")]
    Setting {
        /// The key of [`super::JudgeConfig`].
        key: &'static str,
        /// The problem and how to fix it.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What the operating system said.
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
