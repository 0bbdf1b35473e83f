//! Errors from presets and from settings changed by path.

use thiserror::Error;

/// Error from a preset or a changed setting.
#[derive(Debug, Error)]
pub enum MethodError {
    /// Unknown preset.
    #[error("unknown preset `{name}`{hint}")]
    UnknownPreset {
        /// Name.
        name: String,
        /// Most similar name, or all names.
        hint: String,
    },
    /// Invalid settings of a preset.
    #[error("{0}")]
    Preset(String),
    /// Unknown setting in a path.
    #[error("there is no `{key}`; there are {known}.{nearest}")]
    UnknownSwitch {
        /// Unknown part of the path.
        key: String,
        /// Valid names.
        known: String,
        /// ` Did you mean ...?`, or empty.
        nearest: String,
    },
    /// Path that goes on after a plain value.
    #[error("`{path}` is a value and has no `{key}`")]
    Value {
        /// Path of the value.
        path: String,
        /// Rest of the path.
        key: String,
    },
    /// Invalid list index in a path.
    #[error("`{key}` is no index of a list of {count}")]
    Index {
        /// Invalid part of the path.
        key: String,
        /// Length of the list.
        count: usize,
    },
    /// Value that the config rejects.
    #[error("{0}")]
    Refused(#[from] serde_json::Error),
}
