//! Conversations as turns: every message that the policy wrote is a turn, and what came before it
//! since the last one is its observation.

use serde_json::Value;
use turnwise_core::{Reasoning, Task, Trajectory, Turn};

use crate::dump::{Record, TurnExtras};

/// One message of a conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Message {
    /// True if the policy wrote it.
    pub(crate) sampled: bool,
    /// All of it.
    pub(crate) text: String,
    /// The part that acts: the tool calls, or the text without the reasoning before it; nothing of a text that was cut
    /// off while it reasoned.
    pub(crate) action: String,
    /// Entropies of its tokens, if known.
    pub(crate) entropies: Vec<f32>,
}

impl Message {
    /// Returns a message that the policy did not write.
    pub(crate) fn given(text: String) -> Self {
        Self { text, ..Self::default() }
    }

    /// Returns a message that the policy wrote.
    pub(crate) fn written(text: &str) -> Self {
        let acting = Reasoning::of_continued(text).answer().unwrap_or_default();
        Self { sampled: true, text: text.to_owned(), action: acting.trim().to_owned(), entropies: Vec::new() }
    }
}

/// Returns the messages of a JSON value: a text, or a list of objects with `role` and `content`.
pub(crate) fn messages(value: &Value) -> Option<Vec<Message>> {
    match value {
        Value::String(text) => Some(vec![Message::written(text)]),
        Value::Array(items) => items.iter().map(message).collect(),
        _ => None,
    }
}

/// Returns one message of the shape that chat interfaces share; `sampled` is set by its role.
pub(crate) fn message(value: &Value) -> Option<Message> {
    let role = value["role"].as_str()?;
    let mut text = content(&value["content"])?;
    let calls: Vec<String> = value["tool_calls"].as_array().into_iter().flatten().filter_map(call).collect();
    let mut message = Message::written(&text);
    if !calls.is_empty() {
        message.action = calls.join("\n");
        text = if text.is_empty() { message.action.clone() } else { format!("{text}\n{}", message.action) };
    }
    if let Some(reasoning) = value["reasoning_content"].as_str() {
        text = format!("{reasoning}\n{text}");
    }
    Some(Message { sampled: role == "assistant", text, ..message })
}

/// Returns the text of a message's content, which may be a list of parts.
fn content(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some(String::new()),
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            // Parts that are no text (images) count as what they are written as.
            let text = |part: &Value| {
                part["text"].as_str().map_or_else(|| part.to_string(), std::borrow::ToOwned::to_owned)
            };
            Some(parts.iter().map(text).collect::<Vec<_>>().join("\n"))
        }
        _ => None,
    }
}

/// Returns a tool call as `name(arguments)`: an object, the same inside `function`, or JSON text of either.
fn call(value: &Value) -> Option<String> {
    if let Value::String(text) = value {
        return serde_json::from_str::<Value>(text).ok().filter(Value::is_object).as_ref().and_then(call);
    }
    let inner = if value["function"].is_object() { &value["function"] } else { value };
    let name = inner["name"].as_str()?;
    let arguments = match &inner["arguments"] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    Some(format!("{name}({arguments})"))
}

/// Returns a record of a conversation. The reward belongs to the last turn.
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
    for message in messages {
        if message.sampled {
            turns.push(Turn {
                observation: std::mem::take(&mut observation),
                response: message.text,
                action: message.action,
                valid: true,
                entropies: message.entropies,
                ..Turn::default()
            });
        } else {
            if !observation.is_empty() {
                observation.push('\n');
            }
            observation.push_str(&message.text);
        }
    }
    if let Some(last) = turns.last_mut() {
        last.reward = reward;
    }
    let extras = TurnExtras { has_observation: true, has_action: true, ..TurnExtras::default() };
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

/// Numbers the groups that the file gives no name of their own, in order of first appearance in
/// their step.
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
