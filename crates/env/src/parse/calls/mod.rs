//! Parses tool calls in responses.
//!
//! | file | format |
//! |---|---|
//! | `hermes.rs` | JSON in tags: `<tool_call>{"name": "f", "arguments": {"n": 1}}</tool_call>` |
//! | `llama.rs` | JSON alone: `{"name": "f", "parameters": {"n": 1}}` |
//! | `python.rs` | a Python list: `[f(n=1), g(text="x")]` |
//! | `json.rs` | shared: objects with a name and arguments, formatted like Python's `json.dumps` |
//!
//! A response may contain several calls, which the environment executes in order. Parsing never
//! panics. For an invalid call, the parser returns an error message that can be shown to the model.

mod hermes;
mod json;
mod llama;
mod python;
#[cfg(test)]
mod tests;

use serde::Deserialize;
use turnwise_core::ToolCall;

use super::rules::ResponseRules;

/// Format in which a response contains tool calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallFormat {
    /// JSON objects with `name` and `arguments`, each inside tags (`action_tags`), as written by
    /// Hermes and Qwen.
    #[default]
    Hermes,
    /// JSON objects with `name` and `parameters`, separated by semicolons and without tags, as
    /// written by Llama 3.
    Llama,
    /// A Python list of calls with named arguments, as written by Llama 3.2, Llama 4 and BFCL.
    Python,
}

impl CallFormat {
    /// Returns the calls in a response in order, without ids. The result is empty if there are no
    /// calls. Returns an error message if a call begins but is malformed.
    pub(super) fn read(self, rules: &ResponseRules, answer: &str) -> Result<Vec<ToolCall>, &'static str> {
        match self {
            Self::Hermes => hermes::read(&rules.action_tags, answer),
            Self::Llama => llama::read(answer),
            Self::Python => python::read(answer),
        }
    }

    /// Writes calls. For [`CallFormat::Hermes`], omits the outermost tags because the template
    /// contains them.
    pub(crate) fn write(self, rules: &ResponseRules, calls: &[ToolCall]) -> String {
        match self {
            Self::Hermes => hermes::write(&rules.action_tags, calls),
            Self::Llama => llama::write(calls),
            Self::Python => python::write(calls),
        }
    }
}

/// Parses calls from an action's text, which has one call per line
/// ([`turnwise_core::Action::text`]). Returns an empty list if any line is not a call.
pub fn calls_of_words(words: &str) -> Vec<ToolCall> {
    words.lines().map(ToolCall::from_text).collect::<Option<Vec<_>>>().unwrap_or_default()
}
