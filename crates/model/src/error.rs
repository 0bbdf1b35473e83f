use std::fmt::Display;
use std::path::Path;

use thiserror::Error;
use turnwise_files::PathError;

/// Error of a model, its files or its settings.
#[derive(Debug, Error)]
pub enum ModelError {
    /// `config.json` has an unsupported value.
    #[error("config.json: {key}: {reason}")]
    Config {
        /// Name of the key.
        key: String,
        /// Cause and a valid value.
        reason: String,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    Io(PathError),
    /// A file has invalid content.
    #[error("{path}: {reason}")]
    File {
        /// Path of the file.
        path: String,
        /// Cause and, if known, the fix.
        reason: String,
    },
    /// A setting of the sampling engine is invalid.
    #[error("sampling engine: {key}: {reason}")]
    Engine {
        /// Name of the setting.
        key: String,
        /// Cause and a valid value.
        reason: String,
    },
    /// A setting is invalid.
    #[error("{key}: {reason}")]
    Setting {
        /// Name of the setting.
        key: String,
        /// Cause and a valid value.
        reason: String,
    },
    /// Settings are out of range.
    #[error(transparent)]
    Settings(turnwise_settings::SettingsError),
}

impl ModelError {
    /// Creates a [`Self::File`] error.
    pub fn file(path: &Path, reason: impl Display) -> Self {
        Self::File { path: path.display().to_string(), reason: reason.to_string() }
    }

    /// Returns a function for `map_err` that adds the path to an I/O error.
    pub fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io(PathError::new(path, source))
    }
}
