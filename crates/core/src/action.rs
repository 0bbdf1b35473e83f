//! Actions: text or structured tool calls.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Reply;

/// A structured tool call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Id that the tool result refers to.
    pub id: String,
    /// Function name.
    pub name: String,
    /// Arguments, usually a JSON object.
    #[serde(default)]
    pub arguments: Value,
}

/// Action as the environment receives it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Action {
    /// Free text.
    Text {
        /// The text.
        text: String,
    },
    /// A structured call.
    Call(ToolCall),
    /// A tool call that could not be parsed.
    Malformed {
        /// Response text.
        text: String,
        /// Error message returned to the policy.
        error: String,
    },
    /// Reply to an agent's request ([`crate::Conversation`]).
    Reply(Reply),
}

impl Action {
    /// Returns the action as text; calls become `name(arguments as JSON)`.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Text { text } | Self::Malformed { text, .. } => Cow::Borrowed(text),
            Self::Reply(reply) => Cow::Borrowed(&reply.content),
            Self::Call(ToolCall { name, arguments, .. }) => Cow::Owned(format!("{name}({arguments})")),
        }
    }

    /// Returns the structured tool call; `None` for other actions.
    pub fn call(&self) -> Option<&ToolCall> {
        match self {
            Self::Text { .. } | Self::Malformed { .. } | Self::Reply(_) => None,
            Self::Call(call) => Some(call),
        }
    }
}

impl ToolCall {
    /// Parses `name(arguments as JSON)`, the inverse of [`Action::text`]; `None` for other text.
    pub fn from_text(text: &str) -> Option<Self> {
        let (name, rest) = text.split_once('(')?;
        let arguments = serde_json::from_str(rest.strip_suffix(')')?).ok()?;
        let named = !name.is_empty()
            && name.chars().all(|character| character.is_alphanumeric() || "_-.".contains(character));
        named.then(|| Self { id: String::new(), name: name.to_owned(), arguments })
    }
}

impl Default for Action {
    fn default() -> Self {
        Self::Text { text: String::new() }
    }
}

impl From<&str> for Action {
    fn from(text: &str) -> Self {
        Self::Text { text: text.to_owned() }
    }
}

impl From<&String> for Action {
    fn from(text: &String) -> Self {
        Self::Text { text: text.clone() }
    }
}

impl From<String> for Action {
    fn from(text: String) -> Self {
        Self::Text { text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_words_too() {
        let arguments = serde_json::json!({"city": "Oslo", "days": 2});
        let call = Action::Call(ToolCall { id: "c1".into(), name: "weather".into(), arguments });
        assert_eq!(call.text(), r#"weather({"city":"Oslo","days":2})"#);
        let read = ToolCall::from_text(&call.text()).unwrap();
        assert_eq!(Action::Call(ToolCall { id: "c1".into(), ..read }), call);
        for words in ["look", "look(around)", "({})", "go to (1)", "f({}", "f({}) now"] {
            assert_eq!(ToolCall::from_text(words), None, "{words}");
        }
        assert_eq!(Action::from("look").text(), "look");
        let json = serde_json::to_string(&call).unwrap();
        assert_eq!(serde_json::from_str::<Action>(&json).unwrap(), call);
    }
}
