//! Calls of tools in responses.
//!
//! | file | format |
//! |---|---|
//! | `hermes.rs` | JSON in tags: `<tool_call>{"name": "f", "arguments": {"n": 1}}</tool_call>` |
//! | `llama.rs` | JSON alone: `{"name": "f", "parameters": {"n": 1}}` |
//! | `python.rs` | a Python list: `[f(n=1), g(text="x")]` |
//! | `json.rs` | objects with a name and arguments, and JSON as Python's `json.dumps` writes it |
//!
//! A response may make several calls, which the world carries out in order. Whatever a policy writes is read without a panic:
//! what is not a call has a reason that the world can answer with.

mod hermes;
mod json;
mod llama;
mod python;
#[cfg(test)]
mod tests;

use serde::Deserialize;
use turnwise_core::ToolCall;

use super::rules::ResponseRules;

/// Format of the calls of tools in a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallFormat {
    /// One JSON object with `name` and `arguments` in tags (`action_tags`), as Hermes and Qwen write it.
    #[default]
    Hermes,
    /// JSON objects with `name` and `parameters` without tags, several after a semicolon, as Llama 3 writes them.
    Llama,
    /// A Python list of calls with named arguments, as Llama 3.2, Llama 4 and BFCL write it.
    Python,
}

impl CallFormat {
    /// Returns the calls of an answer in their order; none if it has no call at all. Calls have no id yet.
    ///
    /// # Errors
    /// There is the start of a call and it cannot be read; the text says why.
    pub(super) fn read(self, rules: &ResponseRules, answer: &str) -> Result<Vec<ToolCall>, &'static str> {
        match self {
            Self::Hermes => hermes::read(&rules.action_tags, answer),
            Self::Llama => llama::read(answer),
            Self::Python => python::read(answer),
        }
    }

    /// Returns calls as a model writes them in this format. With [`CallFormat::Hermes`] the outermost tags are left out, which
    /// the template's text has.
    pub(crate) fn write(self, rules: &ResponseRules, calls: &[ToolCall]) -> String {
        match self {
            Self::Hermes => hermes::write(&rules.action_tags, calls),
            Self::Llama => llama::write(calls),
            Self::Python => python::write(calls),
        }
    }
}

/// Returns the calls that an action's words stand for, one a line ([`turnwise_core::Action::text`]); none if a line is not a
/// call.
pub fn calls_of_words(words: &str) -> Vec<ToolCall> {
    words.lines().map(ToolCall::from_text).collect::<Option<Vec<_>>>().unwrap_or_default()
}
