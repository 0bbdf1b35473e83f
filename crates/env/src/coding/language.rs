//! Languages of tasks.

use serde::{Deserialize, Serialize};

/// The language of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Language {
    /// Python, evaluated by the `python3` in `PATH`.
    #[default]
    Python,
    /// Rust, compiled by the `rustc` in `PATH`.
    Rust,
}

impl Language {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
    pub(super) fn is_python(&self) -> bool {
        *self == Self::Python
    }

    /// Returns what to do if its program is missing.
    pub(super) fn missing(self) -> &'static str {
        match self {
            Self::Python => "its tasks are Python; install python3 so that it is found in PATH",
            Self::Rust => {
                "`env.generator.languages` or a task of `env.data` names Rust, but there is no rustc; install Rust \
                 so that rustc is found in PATH, or leave out \"rust\""
            }
        }
    }
}
