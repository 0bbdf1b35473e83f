//! Splits conversations into turns. Each message of the policy is a turn, which observes the
//! messages since the previous turn.

use serde_json::Value;
use turnwise_core::{Part, Reasoning, Task, ToolCall, Trajectory, Turn};

use crate::dump::{Record, TurnExtras};

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Message {
    pub(crate) sampled: bool,
    /// Role of the speaker. Empty if the file contains only text.
    pub(crate) role: String,
    pub(crate) text: String,
    /// The message's tool calls, or, if it has none, the text after the reasoning. Empty if the
    /// message was cut off during reasoning.
    pub(crate) action: String,
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) call_id: Option<String>,
    pub(crate) entropies: Vec<f32>,
    pub(crate) ids: Vec<u32>,
    pub(crate) logprobs: Vec<f32>,
}

impl Message {
    pub(crate) fn given(text: String) -> Self {
        Self { text, ..Self::default() }
    }

    pub(crate) fn written(text: &str) -> Self {
        let acting = Reasoning::of_continued(text).answer().unwrap_or_default();
        let action = acting.trim().to_owned();
        Self { sampled: true, text: text.to_owned(), action, ..Self::default() }
    }

    pub(crate) fn calling(content: &str, reasoning: Option<&str>, calls: Vec<ToolCall>) -> Self {
        let mut text = content.to_owned();
        let mut message = Self::written(content);
        if !calls.is_empty() {
            message.action = words_of(&calls);
            text =
                if text.is_empty() { message.action.clone() } else { format!("{text}\n{}", message.action) };
        }
        if let Some(reasoning) = reasoning {
            text = format!("<think>\n{reasoning}\n</think>\n\n{text}");
        }
        Self { text, calls, ..message }
    }

    fn part(&self) -> Part {
        match &self.call_id {
            Some(id) => Part::ToolResult { call_id: id.clone(), text: self.text.clone() },
            None => Part::Message { role: self.role.clone(), text: self.text.clone() },
        }
    }
}

pub(crate) fn words_of(calls: &[ToolCall]) -> String {
    let words = |call: &ToolCall| match &call.arguments {
        Value::String(text) => format!("{}({text})", call.name),
        Value::Null => format!("{}()", call.name),
        other => format!("{}({other})", call.name),
    };
    calls.iter().map(words).collect::<Vec<_>>().join("\n")
}

/// Parses a text, or a list of objects with `role` and `content`.
pub(crate) fn messages(value: &Value) -> Option<Vec<Message>> {
    match value {
        Value::String(text) => Some(vec![Message::written(text)]),
        Value::Array(items) => items.iter().map(message).collect(),
        _ => None,
    }
}

/// Parses a message with the usual chat keys; `sampled` is true for the role `assistant`.
pub(crate) fn message(value: &Value) -> Option<Message> {
    let role = value["role"].as_str()?;
    let text = content(&value["content"])?;
    let calls: Vec<ToolCall> =
        value["tool_calls"].as_array().into_iter().flatten().filter_map(call).collect();
    let message = Message::calling(&text, value["reasoning_content"].as_str(), calls);
    let call_id = value["tool_call_id"].as_str().map(str::to_owned);
    Some(Message { sampled: role == "assistant", role: role.to_owned(), call_id, ..message })
}

/// Returns a message's content, which may be a list of parts, as one text.
pub(crate) fn content(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some(String::new()),
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let mut joined = String::new();
            for (index, part) in parts.iter().enumerate() {
                if index > 0 {
                    joined.push('\n');
                }
                match part["text"].as_str() {
                    Some(text) => joined.push_str(text),
                    // Images and other parts become JSON.
                    None => joined.push_str(&part.to_string()),
                }
            }
            Some(joined)
        }
        _ => None,
    }
}

/// Parses a tool call from an object, from the object's `function`, or from JSON text of such an
/// object.
fn call(value: &Value) -> Option<ToolCall> {
    if let Value::String(text) = value {
        return serde_json::from_str::<Value>(text).ok().filter(Value::is_object).as_ref().and_then(call);
    }
    let inner = if value["function"].is_object() { &value["function"] } else { value };
    let name = inner["name"].as_str()?.to_owned();
    let arguments = match &inner["arguments"] {
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text.as_str())),
        other => other.clone(),
    };
    Some(ToolCall { id: value["id"].as_str().unwrap_or_default().to_owned(), name, arguments })
}

pub(crate) fn record(
    line: usize,
    step: u64,
    key: String,
    group: Value,
    goal: String,
    messages: Vec<Message>,
    reward: f64,
    success: Option<bool>,
) -> Record {
    let mut turns: Vec<Turn> = Vec::new();
    let mut observation = String::new();
    let mut parts: Vec<Message> = Vec::new();
    for message in messages {
        if message.sampled {
            turns.push(Turn {
                observation: std::mem::take(&mut observation),
                parts: parts_of(&std::mem::take(&mut parts)),
                response: message.text,
                action: message.action,
                calls: message.calls,
                valid: true,
                entropies: message.entropies,
                response_ids: message.ids,
                old_logprobs: message.logprobs,
                ..Turn::default()
            });
        } else {
            if !observation.is_empty() {
                observation.push('\n');
            }
            observation.push_str(&message.text);
            parts.push(message);
        }
    }
    if let Some(last) = turns.last_mut() {
        last.reward = reward;
    }
    let extras =
        TurnExtras { has_observation: true, has_action: true, has_reward: true, ..TurnExtras::default() };
    Record {
        line,
        step,
        key,
        group,
        sample: None,
        success,
        turns: vec![extras; turns.len()],
        trajectory: Trajectory {
            step,
            final_observation: observation,
            success: success.unwrap_or(false),
            ..Trajectory::new(Task::new("", "", goal), turns)
        },
    }
}

/// Returns an observation's parts. A single user message, or messages without roles, have no parts.
fn parts_of(messages: &[Message]) -> Vec<Part> {
    let plain = |message: &Message| message.role.is_empty();
    match messages {
        [only] if only.call_id.is_none() && matches!(only.role.as_str(), "" | "user") => Vec::new(),
        _ if messages.iter().all(plain) => Vec::new(),
        _ => messages.iter().map(Message::part).collect(),
    }
}

/// Numbers the groups that have no name. Within a step, numbers follow the order of first
/// appearance.
pub(crate) fn name_groups(records: &mut [Record]) {
    let mut numbers: std::collections::BTreeMap<(u64, String), usize> = std::collections::BTreeMap::new();
    let mut counts: std::collections::BTreeMap<u64, usize> = std::collections::BTreeMap::new();
    for record in records {
        if record.group.is_null() {
            let count = counts.entry(record.step).or_default();
            let number = *numbers.entry((record.step, record.key.clone())).or_insert_with(|| {
                *count += 1;
                *count - 1
            });
            record.group = Value::from(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reasoning_that_was_cut_off_is_no_action() {
        for (text, action) in [
            ("<think>go north? or sou", ""),
            ("<think>where?</think>go north", "go north"),
            ("where?</think>go north", "go north"),
            ("go north", "go north"),
        ] {
            assert_eq!(Message::written(text).action, action, "{text}");
        }
    }

    #[test]
    fn tool_calls_are_the_action() {
        for call in [
            json!({"id": "1", "name": "look", "arguments": "{\"at\":1}"}),
            json!({"function": {"name": "look", "arguments": {"at": 1}}}),
            json!("{\"name\":\"look\",\"arguments\":\"{\\\"at\\\":1}\"}"),
        ] {
            let value = json!({"role": "assistant", "content": "hm", "tool_calls": [call]});
            let message = message(&value).unwrap();
            assert_eq!(
                (message.action.as_str(), message.text.as_str()),
                ("look({\"at\":1})", "hm\nlook({\"at\":1})")
            );
        }
        let parts = json!({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]});
        assert_eq!(message(&parts).unwrap().text, "a\nb");
    }
}
