//! Errors of presets and switches.

use thiserror::Error;

/// Reason why there is no configuration of this preset with these switches.
#[derive(Debug, Error)]
pub enum MethodError {
    /// No preset has this name.
    #[error("unknown preset `{name}`{nearest} (there are: {known})")]
    UnknownPreset {
        /// The name.
        name: String,
        /// `; did you mean ...?`, or nothing.
        nearest: String,
        /// All names.
        known: String,
    },
    /// A preset whose own settings are wrong.
    #[error("{0}")]
    Preset(String),
    /// A switch that the configuration does not have.
    #[error("there is no `{key}`; there are {known}.{nearest}")]
    UnknownSwitch {
        /// The part of the path that is not there.
        key: String,
        /// Names that there are.
        known: String,
        /// ` Did you mean ...?`, or nothing.
        nearest: String,
    },
    /// A path that goes on after a value.
    #[error("`{path}` is a value and has no `{key}`")]
    Value {
        /// The path of the value.
        path: String,
        /// The part that follows.
        key: String,
    },
    /// A path into a list that is no index of it.
    #[error("`{key}` is no index of a list of {count}")]
    Index {
        /// The part of the path.
        key: String,
        /// Entries of the list.
        count: usize,
    },
    /// A value that the configuration refuses.
    #[error("{0}")]
    Refused(#[from] serde_json::Error),
}
