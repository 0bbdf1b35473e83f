//! Errors from presets and switches (settings changed by path).

use thiserror::Error;

/// Error from a preset or a changed setting.
#[derive(Debug, Error)]
pub enum MethodError {
    /// No preset has this name.
    #[error("unknown preset `{name}`{hint}")]
    UnknownPreset {
        /// The name.
        name: String,
        /// The most similar name, or all names if none is similar.
        hint: String,
    },
    /// The settings of a preset are invalid.
    #[error("{0}")]
    Preset(String),
    /// A path names an unknown setting.
    #[error("there is no `{key}`; there are {known}.{nearest}")]
    UnknownSwitch {
        /// The unknown part of the path.
        key: String,
        /// The valid names.
        known: String,
        /// ` Did you mean ...?`, or empty.
        nearest: String,
    },
    /// A path goes on after reaching a plain value.
    #[error("`{path}` is a value and has no `{key}`")]
    Value {
        /// Path of the value.
        path: String,
        /// The rest of the path.
        key: String,
    },
    /// A path has an invalid list index.
    #[error("`{key}` is no index of a list of {count}")]
    Index {
        /// The invalid part of the path.
        key: String,
        /// Length of the indexed list.
        count: usize,
    },
    /// The config rejects a value.
    #[error("{0}")]
    Refused(#[from] serde_json::Error),
}
