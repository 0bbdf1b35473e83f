//! Conversations of messages, tool calls and tool results, parsed from OpenAI [`messages`],
//! [`sharegpt`] and Harbor's [`atif`].
//!
//! Each assistant message is a turn; its observation consists of the messages since the previous
//! turn.

pub mod atif;
pub mod messages;
pub mod sharegpt;

pub(crate) mod documents;
pub(crate) mod fields;
mod of_trajectory;

use std::path::Path;

use serde_json::{Map, Value, json};
use turnwise_core::{Task, Tool, ToolCall};

use crate::dump::Record;
use crate::{DumpError, Format, ReadOptions, chat, read};

/// Tags of tool calls, as in Qwen's and Hermes' templates.
const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";

/// A tool call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatCall {
    /// Id that a tool result refers to; empty if the file has none.
    pub id: String,
    /// Tool name.
    pub name: String,
    /// Arguments as JSON text: an object, or a string if the model's arguments were not JSON.
    pub arguments: String,
}

/// A message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatMessage {
    /// `system`, `developer`, `user`, `assistant` or `tool`.
    pub role: String,
    /// Message text.
    pub content: String,
    /// Reasoning before the text.
    pub reasoning: Option<String>,
    /// Tool calls.
    pub calls: Vec<ChatCall>,
    /// Call that a tool message answers.
    pub call_id: Option<String>,
    /// Tool that produced a tool message.
    pub name: Option<String>,
    /// True if the policy wrote the message, so that it is a turn. Other assistant messages were
    /// copied or were written by a program.
    pub sampled: bool,
    /// False if SFT excludes the message (`"weight": 0`).
    pub trained: bool,
    /// Token ids, if known.
    pub ids: Vec<u32>,
    /// Token log-probs, if known.
    pub logprobs: Vec<f32>,
}

impl ChatMessage {
    /// Creates a message, which is a turn if its role is assistant.
    pub fn new(role: &str, content: impl Into<String>) -> Self {
        let sampled = role == "assistant";
        Self { role: role.to_owned(), content: content.into(), sampled, trained: true, ..Self::default() }
    }

    /// Returns JSON for a chat template, with arguments as objects.
    pub fn to_json(&self) -> String {
        let quoted = |text: &str| Value::from(text).to_string();
        let mut json = format!(r#"{{"role":{},"content":{}"#, quoted(&self.role), quoted(&self.content));
        if let Some(reasoning) = &self.reasoning {
            json.push_str(&format!(r#","reasoning_content":{}"#, quoted(reasoning)));
        }
        if !self.calls.is_empty() {
            let call = |call: &ChatCall| {
                let (id, name) = (quoted(&call.id), quoted(&call.name));
                format!(
                    r#"{{"id":{id},"type":"function","function":{{"name":{name},"arguments":{}}}}}"#,
                    call.arguments
                )
            };
            let calls: Vec<String> = self.calls.iter().map(call).collect();
            json.push_str(&format!(r#","tool_calls":[{}]"#, calls.join(",")));
        }
        for (key, value) in [("tool_call_id", &self.call_id), ("name", &self.name)] {
            if let Some(value) = value {
                json.push_str(&format!(r#","{key}":{}"#, quoted(value)));
            }
        }
        json + "}"
    }

    /// Returns OpenAI's format, with arguments as text.
    pub(crate) fn to_openai(&self) -> Value {
        let mut message = Map::new();
        message.insert("role".into(), json!(self.role));
        message.insert("content".into(), json!(self.content));
        if let Some(reasoning) = &self.reasoning {
            message.insert("reasoning_content".into(), json!(reasoning));
        }
        if !self.calls.is_empty() {
            let call = |call: &ChatCall| {
                json!({"id": call.id, "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments_text()}})
            };
            message.insert("tool_calls".into(), self.calls.iter().map(call).collect());
        }
        for (key, value) in [("tool_call_id", &self.call_id), ("name", &self.name)] {
            if let Some(value) = value {
                message.insert(key.into(), json!(value));
            }
        }
        Value::Object(message)
    }
}

impl ChatCall {
    /// Returns the arguments as the model wrote them.
    pub(crate) fn arguments_text(&self) -> String {
        serde_json::from_str::<String>(&self.arguments).unwrap_or_else(|_| self.arguments.clone())
    }

    /// Formats the call with `<tool_call>` tags.
    pub fn to_tagged(&self) -> String {
        let name = Value::from(self.name.as_str());
        format!("{OPEN}\n{{\"name\": {name}, \"arguments\": {}}}\n{CLOSE}", self.arguments)
    }

    fn to_tool_call(&self) -> ToolCall {
        let arguments = serde_json::from_str(&self.arguments).unwrap_or_default();
        ToolCall { id: self.id.clone(), name: self.name.clone(), arguments }
    }
}

/// Normalizes arguments to JSON text; a string with a JSON object becomes that object.
pub(crate) fn arguments(given: Option<&str>) -> String {
    let Some(given) = given.map(str::trim) else { return "{}".into() };
    let Ok(text) = serde_json::from_str::<String>(given) else { return given.to_owned() };
    if text.trim().is_empty() {
        return "{}".into();
    }
    let is_object = serde_json::from_str::<Map<String, Value>>(&text).is_ok();
    if is_object { text.trim().to_owned() } else { given.to_owned() }
}

/// A conversation with its rewards.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    /// First line or Parquet row, from 1.
    pub line: usize,
    /// Messages in order.
    pub messages: Vec<ChatMessage>,
    /// Available tools.
    pub tools: Vec<Tool>,
    /// Rewards per turn, if the file has any.
    pub rewards: Option<Vec<f64>>,
    /// Group name, a text or number.
    pub group: Option<Value>,
    /// Index in the group.
    pub sample: Option<usize>,
    /// Training step.
    pub step: u64,
    /// Task, if known.
    pub task: Option<Task>,
    /// Whether the task was solved, if known.
    pub success: Option<bool>,
}

impl Conversation {
    /// Returns the number of turns.
    pub fn turns(&self) -> usize {
        self.messages.iter().filter(|message| message.sampled).count()
    }

    /// Sets the rewards: either one, for the last turn, or one per turn.
    ///
    /// # Errors
    /// Fails if the number of rewards differs from the number of turns, or if rewards contradict
    /// each other.
    pub(crate) fn set_rewards(
        &mut self,
        outcome: Option<f64>,
        turns: Option<(&str, Vec<f64>)>,
    ) -> Result<(), String> {
        let count = self.turns();
        if count == 0 {
            return Err("it has no assistant message, so it has no turn".into());
        }
        self.rewards = match (outcome, turns) {
            (None, None) => None,
            (Some(outcome), None) => {
                let mut rewards = vec![0.0; count];
                rewards[count - 1] = outcome;
                Some(rewards)
            }
            (outcome, Some((key, rewards))) => {
                if rewards.len() != count {
                    return Err(format!(
                        "`{key}` has {} entries and there are {count} assistant messages; give each one reward",
                        rewards.len()
                    ));
                }
                let sum: f64 = rewards.iter().sum();
                if let Some(outcome) = outcome
                    && (outcome - sum).abs() > 1e-6 * outcome.abs().max(sum.abs()).max(1.0)
                {
                    return Err(format!(
                        "`reward` is {outcome} and the sum of `{key}` is {sum}; give one of them, or make them agree"
                    ));
                }
                Some(rewards)
            }
        };
        Ok(())
    }

    /// Splits off the messages before the first turn.
    pub(crate) fn split_prompt(&self) -> (&[ChatMessage], &[ChatMessage]) {
        let first = self.messages.iter().position(|message| message.sampled);
        self.messages.split_at(first.unwrap_or(self.messages.len()))
    }

    /// Returns the text of the last message before the first turn, or an empty text.
    pub fn goal(&self) -> &str {
        self.split_prompt().0.last().map_or("", |message| &message.content)
    }

    pub(crate) fn record(self) -> Record {
        let (key, group) = if let Some(group) = &self.group {
            (group.to_string(), group.clone())
        } else {
            let prompt: Vec<String> = self.split_prompt().0.iter().map(ChatMessage::to_json).collect();
            (prompt.join("\n"), Value::Null)
        };
        let goal = self.goal().to_owned();
        let messages = self.messages.iter().map(|message| {
            let calls = message.calls.iter().map(ChatCall::to_tool_call).collect();
            chat::Message {
                sampled: message.sampled,
                role: message.role.clone(),
                call_id: message.call_id.clone(),
                ids: message.ids.clone(),
                logprobs: message.logprobs.clone(),
                ..chat::Message::calling(&message.content, message.reasoning.as_deref(), calls)
            }
        });
        let messages = messages.collect();
        let mut record = chat::record(self.line, self.step, key, group, goal, messages, 0.0, self.success);
        record.sample = self.sample;
        record.trajectory.tools = self.tools;
        if let Some(task) = self.task {
            record.trajectory.task = task;
        }
        let has_reward = self.rewards.is_some();
        record.turns.iter_mut().for_each(|turn| turn.has_reward = has_reward);
        for (turn, reward) in record.trajectory.turns.iter_mut().zip(self.rewards.into_iter().flatten()) {
            turn.reward = reward;
        }
        record
    }
}

/// A file's conversations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversations {
    /// Conversations in file order.
    pub conversations: Vec<Conversation>,
    /// Notes for the user about reading the file.
    pub notes: Vec<String>,
}

/// Reads conversations in any supported format, keeping their messages.
///
/// ```
/// use turnwise_trajectory_io::{ReadOptions, read_conversations};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("one.jsonl");
/// std::fs::write(&path, r#"{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}"#)?;
/// let read = read_conversations(&path, &ReadOptions::default())?;
/// assert_eq!(read.conversations[0].messages[1].content, "ho");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The error names the file, line, key and problem.
pub fn read_conversations(path: &Path, options: &ReadOptions) -> Result<Conversations, DumpError> {
    let format = match options.format {
        Some(format) => format,
        None => crate::format::detect(path)?,
    };
    let mut notes = Vec::new();
    let conversations = match format {
        Format::Messages => messages::conversations(path)?,
        Format::ShareGpt => sharegpt::conversations(path)?,
        Format::Atif => atif::conversations(path, &mut notes)?,
        Format::Turnwise | Format::Verl | Format::Trl | Format::Verifiers => {
            let dump = read(path, &ReadOptions { format: Some(format), ..options.clone() })?;
            notes = dump.notes;
            let steps = dump.batches.iter().flat_map(|step| step.batch.trajectories());
            steps.map(Conversation::of).collect()
        }
    };
    if conversations.is_empty() {
        return Err(DumpError::file(path, "has no conversations"));
    }
    Ok(Conversations { conversations, notes })
}

pub(crate) fn records(conversations: Vec<Conversation>) -> Vec<Record> {
    let mut records: Vec<Record> = conversations.into_iter().map(Conversation::record).collect();
    chat::name_groups(&mut records);
    records
}
