//! ShareGPT:
//! `{"conversations": [{"from": "human", "value": ".."}, {"from": "gpt", "value": ".."}]}`,
//! optionally with `system` and `tools`, as in LLaMA-Factory.
//!
//! | `from` | role |
//! |---|---|
//! | `human`, `user` | user |
//! | `gpt`, `chatgpt`, `bing`, `bard`, `model`, `assistant` | assistant |
//! | `function_call` | assistant: JSON of one call (`name`, `arguments`) or a list |
//! | `observation`, `tool`, `function_response` | tool: result of the preceding call |
//! | `system` | system |
//!
//! `role` and `content` also work. For other keys, see [`super::messages`].

use std::path::Path;

use super::fields::{Fields, shown};
use super::messages::{header, is_used, set_rewards};
use super::{ChatCall, ChatMessage, Conversation, arguments, documents, messages};
use crate::DumpError;

pub(crate) fn conversations(path: &Path) -> Result<Vec<Conversation>, DumpError> {
    documents::parsed(path, is_used, conversation)
}

fn conversation(line: usize, text: &str) -> Result<Conversation, String> {
    let fields = Fields::parse(text, "")?;
    let Some(items) = fields.objects("conversations")? else {
        return Err(fields.missing("conversations", "a list of objects with `from` and `value`"));
    };
    let mut conversation = header(&fields)?;
    conversation.line = line;
    conversation.messages.extend(fields.text("system")?.map(|text| ChatMessage::new("system", text)));
    let mut number = 0;
    for item in &items {
        let mut message = message(item, &mut number)?;
        // A result after a single call belongs to it.
        if message.role == "tool"
            && message.call_id.is_none()
            && let Some([call]) = conversation.messages.last().map(|last| last.calls.as_slice())
            && !call.id.is_empty()
        {
            message.call_id = Some(call.id.clone());
        }
        conversation.messages.push(message);
    }
    set_rewards(&mut conversation, &fields, None)?;
    Ok(conversation)
}

/// Parses a message. `number` counts the calls so far and becomes part of their ids.
fn message(fields: &Fields<'_>, number: &mut usize) -> Result<ChatMessage, String> {
    let Some(from) = fields.text("from")? else {
        if fields.raw("role").is_some() {
            return messages::message(fields);
        }
        return Err(fields.missing("from", "human, gpt, system, function_call or observation"));
    };
    let Some(value) = fields.text("value")? else {
        return Err(fields.missing("value", "a text"));
    };
    let role = match from.as_str() {
        "human" | "user" => "user",
        "gpt" | "chatgpt" | "bing" | "bard" | "model" | "assistant" => "assistant",
        "system" => "system",
        "observation" | "tool" | "function_response" => "tool",
        "function_call" => {
            let mut message = ChatMessage::new("assistant", "");
            message.calls =
                calls(&value, number).map_err(|reason| format!("`{}` {reason}", fields.path("value")))?;
            return Ok(message);
        }
        other => {
            return Err(format!(
                "`{}` is {other:?}; it must be human, gpt, system, function_call or observation",
                fields.path("from")
            ));
        }
    };
    Ok(ChatMessage::new(role, value))
}

fn calls(value: &str, number: &mut usize) -> Result<Vec<ChatCall>, String> {
    let list = if value.trim_start().starts_with('[') { value.to_owned() } else { format!("[{value}]") };
    let wrapped = format!(r#"{{"calls":{list}}}"#);
    let wrong = || {
        format!(
            "is {}; it must be the JSON of a call with `name` and `arguments`, or a list of them",
            shown(value)
        )
    };
    let fields = Fields::parse(&wrapped, "").map_err(|_| wrong())?;
    let items = fields.objects("calls").map_err(|_| wrong())?.unwrap_or_default();
    items
        .iter()
        .map(|item| {
            let name = item.text("name").ok().flatten().ok_or_else(wrong)?;
            let id = format!("call_{number}");
            *number += 1;
            Ok(ChatCall { id, name, arguments: arguments(item.raw("arguments")) })
        })
        .collect()
}
