//! Messages of a conversation.

use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use super::ApiError;
use super::fields::Fields;

/// Roles that a message may have.
const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

/// A call of a tool, in a message and in a response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageCall {
    /// The name by which its result refers to it.
    pub id: String,
    /// `function`.
    #[serde(rename = "type", default = "function")]
    pub kind: String,
    /// What is called.
    pub function: CallFunction,
}

/// The function of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFunction {
    /// Name of the tool.
    pub name: String,
    /// Arguments as JSON text, as OpenAI has them.
    pub arguments: String,
}

fn function() -> String {
    "function".to_owned()
}

impl MessageCall {
    /// Creates a call; `arguments` is JSON text.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        let function = CallFunction { name: name.into(), arguments: arguments.into() };
        Self { id: id.into(), kind: "function".to_owned(), function }
    }
}

/// A message of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatMessage {
    /// `system`, `developer`, `user`, `assistant` or `tool`.
    pub role: String,
    /// Its text; parts are joined with line breaks.
    pub content: Option<String>,
    /// Name of the speaker or of the tool.
    pub name: Option<String>,
    /// The thoughts before an assistant's text (`reasoning_content`, an extension of several servers).
    pub reasoning: Option<String>,
    /// Calls that the assistant made.
    pub tool_calls: Vec<MessageCall>,
    /// The call that a message of the role `tool` answers.
    pub tool_call_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

impl ChatMessage {
    /// Creates a message of text.
    pub fn text(role: &str, content: impl Into<String>) -> Self {
        Self { role: role.to_owned(), content: Some(content.into()), ..Self::default() }
    }

    /// Reads the message at a place of a request.
    pub(super) fn read(index: usize, raw: &RawValue) -> Result<Self, ApiError> {
        let mut fields = Fields::of_part(format!("messages[{index}]"), raw)?;
        let role: String = fields.need("role")?;
        if !ROLES.contains(&role.as_str()) {
            let place = fields.place("role");
            let message = format!("`{place}` = \"{role}\": give one of {}", ROLES.join(", "));
            return Err(ApiError::field(place, message));
        }
        let content = match fields.take::<Content>("content")? {
            None => None,
            Some(Content::Text(text)) => Some(text),
            Some(Content::Parts(parts)) => Some(joined(&fields.place("content"), parts)?),
        };
        let name = fields.take("name")?;
        let mut reasoning = None;
        for key in ["reasoning_content", "reasoning", "thinking"] {
            reasoning = reasoning.or(fields.take::<String>(key)?);
        }
        let tool_calls: Vec<MessageCall> = fields.take("tool_calls")?.unwrap_or_default();
        let tool_call_id = fields.take("tool_call_id")?;
        if !tool_calls.is_empty() && role != "assistant" {
            let place = fields.place("tool_calls");
            return Err(ApiError::field(place, "only messages of the role assistant make calls"));
        }
        if role == "tool" && tool_call_id.is_none() {
            let place = fields.place("tool_call_id");
            let message = format!("`{place}` is missing: which call does this result belong to?");
            return Err(ApiError::field(place, message));
        }
        if content.is_none() && tool_calls.is_empty() {
            let place = fields.place("content");
            let message = format!("`{place}` is missing");
            return Err(ApiError::field(place, message));
        }
        // Clients send back what a response had, with these empty.
        for key in ["annotations", "audio", "function_call", "refusal"] {
            fields.drop_if_neutral(key, &[json!([]), json!("")])?;
        }
        fields.finish()?;
        Ok(Self { role, content, name, reasoning, tool_calls, tool_call_id })
    }
}

/// Returns the text of parts.
fn joined(place: &str, parts: Vec<Part>) -> Result<String, ApiError> {
    let mut texts = Vec::new();
    for (index, part) in parts.into_iter().enumerate() {
        match (part.kind.as_str(), part.text) {
            ("text", Some(text)) => texts.push(text),
            (kind, _) => {
                let place = format!("{place}[{index}]");
                let message = format!("`{place}`: parts of type {kind:?} are not supported; send text");
                return Err(ApiError::unsupported(place, message));
            }
        }
    }
    Ok(texts.join("\n"))
}
