//! Renders prompts with the model's chat template.

use serde_json::{Map, Value};
use turnwise_text::chat::{ChatTemplate, Message, RenderOptions, Tool};

use super::{ApiError, ChatMessage, ChatRequest};

/// Renders a request up to the start of the reply.
///
/// # Errors
/// Rejects, with status 400, messages or tools that the template cannot render, and call arguments
/// that are not JSON.
pub fn prompt_text(template: &ChatTemplate, request: &ChatRequest) -> Result<String, ApiError> {
    prompt_with(template, request, template_tools(request)?)
}

pub(crate) fn prompt_with(
    template: &ChatTemplate,
    request: &ChatRequest,
    tools: Vec<Tool>,
) -> Result<String, ApiError> {
    let options = RenderOptions { add_generation_prompt: true, tools, thinking: request.thinking };
    let messages = template_messages(&request.messages)?;
    template.render(&messages, &options).map_err(|error| ApiError::field("messages", error.to_string()))
}

/// Converts tools for chat templates.
///
/// # Errors
/// Rejects `tools` that are not JSON, with status 400.
pub fn template_tools(request: &ChatRequest) -> Result<Vec<Tool>, ApiError> {
    let read = |tool: &turnwise_core::Tool| Tool::from_json(tool.json());
    let tools: Result<Vec<_>, _> = request.tools.iter().map(read).collect();
    tools.map_err(|error| ApiError::field("tools", error.to_string()))
}

/// Converts messages for chat templates. Call arguments become objects, and the role `developer`
/// becomes `system`.
///
/// # Errors
/// Rejects messages whose call arguments are not JSON, with status 400.
pub fn template_messages(messages: &[ChatMessage]) -> Result<Vec<Message>, ApiError> {
    messages.iter().enumerate().map(|(index, message)| template_message(index, message)).collect()
}

fn template_message(index: usize, message: &ChatMessage) -> Result<Message, ApiError> {
    let role = if message.role == "developer" { "system" } else { &message.role };
    let content = message.content.as_deref().unwrap_or_default();
    let mut entries = Map::new();
    entries.insert("role".to_owned(), role.into());
    entries.insert("content".to_owned(), content.into());
    let optional = [
        ("name", &message.name),
        ("reasoning_content", &message.reasoning),
        ("tool_call_id", &message.tool_call_id),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            entries.insert(key.to_owned(), value.as_str().into());
        }
    }
    let mut json = Value::Object(entries).to_string();
    if !message.tool_calls.is_empty() {
        let mut calls = Vec::new();
        for (call, position) in message.tool_calls.iter().zip(0..) {
            let quoted = |text: &str| Value::from(text).to_string();
            let arguments = call.function.arguments.trim();
            // Empty arguments are valid; as text, keys keep their order.
            let arguments = if arguments.is_empty() { "{}" } else { arguments };
            if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(arguments) {
                let place = format!("messages[{index}].tool_calls[{position}].function.arguments");
                let message = format!("`{place}` is not JSON: {error}");
                return Err(ApiError::field(place, message));
            }
            calls.push(format!(
                r#"{{"id":{},"type":"function","function":{{"name":{},"arguments":{arguments}}}}}"#,
                quoted(&call.id),
                quoted(&call.function.name),
            ));
        }
        json.pop();
        json.push_str(&format!(r#","tool_calls":[{}]}}"#, calls.join(",")));
    }
    Message::from_json(&json)
        .map_err(|error| ApiError::field(format!("messages[{index}]"), error.to_string()))
}
