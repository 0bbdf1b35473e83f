//! Tool calls in responses.
//!
//! | file | format |
//! |---|---|
//! | `hermes.rs` | JSON in tags: `<tool_call>{"name": "f", "arguments": {"n": 1}}</tool_call>` |
//! | `llama.rs` | JSON alone: `{"name": "f", "parameters": {"n": 1}}` |
//! | `python.rs` | a Python list: `[f(n=1), g(text="x")]` |
//! | `json.rs` | shared: objects with a name and arguments, formatted as Python's `json.dumps` |
//!
//! A response may make several calls, which the environment executes in order. Parsing never panics; an
//! invalid call returns a reason that the environment can show to the policy.

mod hermes;
mod json;
mod llama;
mod python;
#[cfg(test)]
mod tests;

use serde::Deserialize;
use turnwise_core::ToolCall;

use super::rules::ResponseRules;

/// Format of tool calls in a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallFormat {
    /// JSON objects with `name` and `arguments`, each in tags (`action_tags`), as Hermes and Qwen
    /// write them.
    #[default]
    Hermes,
    /// JSON objects with `name` and `parameters` without tags, separated by semicolons, as Llama 3
    /// writes them.
    Llama,
    /// A Python list of calls with named arguments, as Llama 3.2, Llama 4 and BFCL write it.
    Python,
}

impl CallFormat {
    /// Returns the calls of a response in order, without ids; empty if there are none. Returns a
    /// reason if a call begins but is malformed.
    pub(super) fn read(self, rules: &ResponseRules, answer: &str) -> Result<Vec<ToolCall>, &'static str> {
        match self {
            Self::Hermes => hermes::read(&rules.action_tags, answer),
            Self::Llama => llama::read(answer),
            Self::Python => python::read(answer),
        }
    }

    /// Writes calls. [`CallFormat::Hermes`] omits the outermost tags, which the template contains.
    pub(crate) fn write(self, rules: &ResponseRules, calls: &[ToolCall]) -> String {
        match self {
            Self::Hermes => hermes::write(&rules.action_tags, calls),
            Self::Llama => llama::write(calls),
            Self::Python => python::write(calls),
        }
    }
}

/// Parses calls from the text of an action, one per line ([`turnwise_core::Action::text`]). Returns
/// an empty list if any line is not a call.
pub fn calls_of_words(words: &str) -> Vec<ToolCall> {
    words.lines().map(ToolCall::from_text).collect::<Option<Vec<_>>>().unwrap_or_default()
}
