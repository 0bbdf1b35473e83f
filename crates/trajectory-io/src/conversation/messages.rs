//! Conversations in OpenAI's message format, one per object:
//!
//! ```json
//! {"messages": [
//!     {"role": "user", "content": "Weather in Oslo?"},
//!     {"role": "assistant", "content": "", "tool_calls": [
//!         {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Oslo\"}"}}]},
//!     {"role": "tool", "tool_call_id": "c1", "content": "rain"},
//!     {"role": "assistant", "content": "It rains."}],
//!  "tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}],
//!  "reward": 1.0, "group": "oslo"}
//! ```
//!
//! | key | meaning |
//! |---|---|
//! | `messages` | the conversation; each assistant message is a turn |
//! | `tools` | tools, as a list or its JSON text |
//! | `reward` | reward of the last turn, or a list with one per turn |
//! | `turn_rewards` | one reward per turn, if `reward` is their sum |
//! | `group` | group to compare (text or number); default: conversations with the same prompt |
//! | `task`, `step`, `sample`, `success` | as in a run's dump |
//!
//! | key of a message | meaning |
//! |---|---|
//! | `role` | `system`, `developer`, `user`, `assistant` or `tool` (also `function`, `ipython`) |
//! | `content` | text, or a list of parts |
//! | `reasoning_content` | reasoning (also `reasoning`, `thinking`) |
//! | `tool_calls` | calls: `id` and `function` (`name`, and `arguments` as JSON or its text) |
//! | `tool_call_id`, `name` | the call that a `tool` message answers |
//! | `reward` | the turn's reward, if the conversation has none |
//! | `weight` | 0 excludes the message from SFT |
//!
//! Other keys are ignored; null values count as missing. Files are JSON lines, a list, a single
//! object or Parquet.

use std::path::Path;

use serde_json::Value;
use turnwise_core::{Task, Tool};

use super::fields::{Fields, shown};
use super::{ChatCall, ChatMessage, Conversation, arguments, documents};
use crate::DumpError;

const ROLES: &str = "system, developer, user, assistant or tool";

pub(crate) fn conversations(path: &Path) -> Result<Vec<Conversation>, DumpError> {
    documents::parsed(path, is_used, conversation)
}

pub(super) fn is_used(keys: &[&str]) -> bool {
    matches!(
        keys,
        ["reward" | "turn_rewards" | "step" | "sample" | "group"] | ["messages", "reward" | "weight"]
    )
}

pub(crate) fn conversation(line: usize, text: &str) -> Result<Conversation, String> {
    let fields = Fields::parse(text, "")?;
    let Some(items) = fields.objects("messages")? else {
        return Err(fields.missing("messages", "a list of objects with `role` and `content`"));
    };
    let mut conversation = header(&fields)?;
    conversation.line = line;
    let mut rewards = Vec::new();
    for item in &items {
        let message = message(item)?;
        match item.number("reward")? {
            Some(_) if !message.sampled => {
                return Err(format!(
                    "`{}` is set, and only assistant messages have rewards",
                    item.path("reward")
                ));
            }
            reward if message.sampled => rewards.push(reward),
            _ => {}
        }
        conversation.messages.push(message);
    }
    let of_messages = rewards.iter().any(Option::is_some).then(|| {
        let rewards = rewards.iter().map(|reward| reward.unwrap_or(0.0)).collect();
        ("messages[].reward", rewards)
    });
    set_rewards(&mut conversation, &fields, of_messages)?;
    Ok(conversation)
}

pub(super) fn set_rewards(
    conversation: &mut Conversation,
    fields: &Fields<'_>,
    of_messages: Option<(&'static str, Vec<f64>)>,
) -> Result<(), String> {
    let is_list = fields.raw("reward").is_some_and(|text| text.starts_with('['));
    let what = "a number, or a list with a number for each assistant message";
    let outcome = if is_list { None } else { fields.get("reward", what)? };
    let listed =
        if is_list { fields.get::<Vec<f64>>("reward", what)?.map(|list| ("reward", list)) } else { None };
    let turns =
        fields.get::<Vec<f64>>("turn_rewards", "a list of numbers")?.map(|list| ("turn_rewards", list));
    let mut lists = [listed, turns, of_messages].into_iter().flatten();
    let list = lists.next();
    if let (Some((first, _)), Some((second, _))) = (&list, lists.next()) {
        return Err(format!("`{first}` and `{second}` both give a reward to each turn; leave one out"));
    }
    conversation.set_rewards(outcome, list)
}

pub(super) fn header(fields: &Fields<'_>) -> Result<Conversation, String> {
    let group = match fields.value("group") {
        Some(group @ (Value::String(_) | Value::Number(_))) => Some(group),
        Some(other) => {
            return Err(format!("`group` is {}; it must be a text or a number", shown(&other.to_string())));
        }
        None => None,
    };
    let what = "a text, or an object with the texts `id`, `kind` and `goal`";
    let task = match fields.raw("task") {
        Some(text) if text.starts_with('"') => fields.text("task")?.map(|goal| Task::new("", "", goal)),
        _ => fields.get::<Task>("task", what)?,
    };
    let count = "a whole number from 0";
    Ok(Conversation {
        tools: tools(fields)?,
        group,
        task,
        sample: fields.get("sample", count)?,
        step: fields.get("step", count)?.unwrap_or(0),
        success: fields.flag("success")?,
        ..Conversation::default()
    })
}

fn tools(fields: &Fields<'_>) -> Result<Vec<Tool>, String> {
    let Some(given) = fields.raw("tools") else { return Ok(Vec::new()) };
    let text = match serde_json::from_str::<String>(given) {
        Ok(text) if text.trim().is_empty() => return Ok(Vec::new()),
        Ok(text) => text,
        Err(_) => given.to_owned(),
    };
    let wrapped = format!(r#"{{"tools":{text}}}"#);
    let wrong =
        || format!("`tools` is {}; it must be a list of tools, or a text with its JSON", shown(given));
    let list = Fields::parse(&wrapped, "").map_err(|_| wrong())?;
    let mut read = Vec::new();
    for (place, item) in list.list("tools").map_err(|_| wrong())?.into_iter().flatten() {
        // In a Parquet column of JSON texts, each tool is a text.
        let unpacked = serde_json::from_str::<String>(item).unwrap_or_else(|_| item.to_owned());
        read.push(Tool::from_json(&unpacked).map_err(|error| format!("`{place}`: {error}"))?);
    }
    Ok(read)
}

pub(super) fn message(fields: &Fields<'_>) -> Result<ChatMessage, String> {
    let Some(role) = fields.text("role")? else {
        return Err(fields.missing("role", ROLES));
    };
    let role = match role.as_str() {
        "system" | "developer" | "user" | "assistant" | "tool" => role,
        "function" | "ipython" => "tool".into(),
        other => return Err(format!("`{}` is {other:?}; it must be {ROLES}", fields.path("role"))),
    };
    let mut message = ChatMessage::new(&role, fields.content("content")?);
    for key in ["reasoning_content", "reasoning", "thinking"] {
        if message.reasoning.is_none() {
            message.reasoning = fields.text(key)?.filter(|text| !text.is_empty());
        }
    }
    for call in fields.objects("tool_calls")?.into_iter().flatten() {
        message.calls.push(self::call(&call)?);
    }
    if let Some(call) = fields.object("function_call")? {
        message.calls.push(self::call(&call)?);
    }
    if role != "assistant" && !message.calls.is_empty() {
        let path = fields.path("tool_calls");
        return Err(format!(
            "`{path}` is set, and only assistant messages make calls; this one is of the role `{role}`"
        ));
    }
    message.call_id = fields.text("tool_call_id")?;
    message.name = fields.text("name")?;
    message.trained = fields.number("weight")? != Some(0.0);
    Ok(message)
}

/// Parses a tool call: an object with `id` and `function`, or only the content of `function`.
fn call(fields: &Fields<'_>) -> Result<ChatCall, String> {
    let function = fields.object("function")?;
    let of = function.as_ref().unwrap_or(fields);
    let Some(name) = of.text("name")? else {
        return Err(of.missing("name", "the name of a tool"));
    };
    Ok(ChatCall {
        id: fields.text("id")?.unwrap_or_default(),
        name,
        arguments: arguments(of.raw("arguments")),
    })
}

#[cfg(test)]
mod tests;
