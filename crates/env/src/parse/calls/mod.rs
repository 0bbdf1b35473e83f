//! Parses tool calls.
//!
//! | file | format |
//! |---|---|
//! | `hermes.rs` | `<tool_call>{"name": "f", "arguments": {"n": 1}}</tool_call>` |
//! | `llama.rs` | `{"name": "f", "parameters": {"n": 1}}` |
//! | `python.rs` | `[f(n=1), g(text="x")]` |
//!
//! The calls of a response are executed in order. An invalid call gives an error message for the
//! model, never a panic.

mod hermes;
mod json;
mod llama;
mod python;
#[cfg(test)]
mod tests;

use serde::Deserialize;
use turnwise_core::ToolCall;

use super::rules::ResponseRules;

/// Format of tool calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallFormat {
    /// JSON with `name` and `arguments` in tags (`action_tags`): Hermes, Qwen.
    #[default]
    Hermes,
    /// Bare JSON with `name` and `parameters`, separated by semicolons: Llama 3.
    Llama,
    /// Python list of calls with named arguments: Llama 3.2, Llama 4, BFCL.
    Python,
}

impl CallFormat {
    /// Returns the calls in order, without ids, or the error of a malformed call.
    pub(super) fn read(self, rules: &ResponseRules, answer: &str) -> Result<Vec<ToolCall>, &'static str> {
        match self {
            Self::Hermes => hermes::read(&rules.action_tags, answer),
            Self::Llama => llama::read(answer),
            Self::Python => python::read(answer),
        }
    }

    /// Writes calls. In the format [`CallFormat::Hermes`], the first opening tag and the last
    /// closing tag are omitted, because templates contain them.
    pub(crate) fn write(self, rules: &ResponseRules, calls: &[ToolCall]) -> String {
        match self {
            Self::Hermes => hermes::write(&rules.action_tags, calls),
            Self::Llama => llama::write(calls),
            Self::Python => python::write(calls),
        }
    }
}

/// Parses an action's text, which has one call per line ([`turnwise_core::Action::text`]). The
/// result is empty if any line is not a call.
pub fn calls_of_words(words: &str) -> Vec<ToolCall> {
    words.lines().map(ToolCall::from_text).collect::<Option<Vec<_>>>().unwrap_or_default()
}
