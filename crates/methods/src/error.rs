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
        /// Most similar preset name or, if none is similar, all names.
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
    /// A path continues after a value that is not a table or list.
    #[error("`{path}` is a value and has no `{key}`")]
    Value {
        /// Path of the value, which has no parts.
        path: String,
        /// Next part of the path.
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
    /// The config rejects the value.
    #[error("{0}")]
    Refused(#[from] serde_json::Error),
}
