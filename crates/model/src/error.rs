//! Errors of the model crate.

use std::fmt::Display;
use std::path::Path;

use thiserror::Error;

/// A model that cannot be made, read or written.
#[derive(Debug, Error)]
pub enum ModelError {
    /// A key of `config.json` has a value that cannot be run.
    #[error("config.json: {key}: {reason}")]
    Config {
        /// The key.
        key: String,
        /// The reason, and a value that would do.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// A file has invalid content.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: String,
        /// The problem and, if known, how to fix it.
        reason: String,
    },
    /// A setting of the sampling engine cannot work.
    #[error("sampling engine: {key}: {reason}")]
    Engine {
        /// The setting.
        key: String,
        /// The reason, and a value that would do.
        reason: String,
    },
    /// A setting that cannot work.
    #[error("{key}: {reason}")]
    Setting {
        /// The setting.
        key: String,
        /// The reason, and a value that would do.
        reason: String,
    },
    /// Settings outside of their ranges.
    #[error(transparent)]
    Settings(turnwise_settings::SettingsError),
}

impl ModelError {
    /// Returns an error about a file's contents.
    pub fn file(path: &Path, reason: impl Display) -> Self {
        Self::File { path: path.display().to_string(), reason: reason.to_string() }
    }

    /// Returns an error of the operating system about a file, as `map_err` takes it.
    pub fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::Io { path, source }
    }
}
