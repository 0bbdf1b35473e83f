//! Descriptions of the config for editors, the terminal and the guide.

use turnwise_settings::{annotate, reference};

use super::load::schema_with;
use super::{Config, Registries};
use crate::TrainError;

const COMMAND: &str = "turnwise config reference > docs/reference/config.md";

/// Returns the JSON Schema of configs with these environments and methods.
pub fn schema(registries: &Registries) -> String {
    format!("{:#}", schema_with(registries))
}

/// Returns the Markdown reference of all keys.
pub fn reference_page() -> String {
    format!(
        "# Config reference\n\n<!-- Made by `{COMMAND}` from the types; a test compares the two. -->\n\n\
         Every key of a config, with what it allows, its default and its meaning. `turnwise config show` prints the same \
         beside the values of a config; `turnwise config schema` writes a JSON Schema for editors. How a config is put \
         together from presets, files and the command line: [Configs](../configs.md).\n\n{}",
        reference::<Config>().trim_end()
    ) + "\n"
}

impl Config {
    /// Returns the config as TOML with a description above each key; unset keys are comments.
    ///
    /// # Errors
    /// Fails if TOML cannot represent a value.
    pub fn to_annotated_toml(&self) -> Result<String, TrainError> {
        Ok(annotate(self)?)
    }
}
