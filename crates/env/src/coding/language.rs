//! Task languages.

use serde::{Deserialize, Serialize};

/// Task language.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Language {
    /// Python (`python3` in `PATH`).
    #[default]
    Python,
    /// Rust (`rustc` in `PATH`).
    Rust,
}

impl Language {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
    pub(super) fn is_python(&self) -> bool {
        *self == Self::Python
    }

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
