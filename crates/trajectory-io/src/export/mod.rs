//! Exports trajectories as OpenAI messages, ATIF, or files for verl and TRL, all of which Turnwise
//! can read.
//!
//! | format | file |
//! |---|---|
//! | [`ExportFormat::Messages`] | `.parquet` (a Hugging Face dataset), `.jsonl`, `.jsonl.zst`, see [`messages`](crate::conversation::messages) |
//! | [`ExportFormat::Atif`] | `.jsonl`, `.jsonl.zst`, or a folder of `.json` files |
//! | [`ExportFormat::Verl`] | `.jsonl`, `.jsonl.zst` with `input`, `output`, `score`, `step`, `uid` |
//! | [`ExportFormat::Trl`] | `.parquet` with `prompt`, `completion`, `reward`, `step` |
//!
//! The exported rewards are those of the environment; for verl and TRL, each trajectory gets their
//! sum.

mod atif;
mod parquet;
mod text;

use std::path::Path;
use std::str::FromStr;

use serde_json::{Value, json};
use turnwise_core::Trajectory;

use crate::write::{Form, form_of, save, save_lines, save_table};
use crate::{Conversation, DumpError};

/// Export format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// OpenAI messages.
    Messages,
    /// Harbor's trajectory format.
    Atif,
    /// verl's rollout dump.
    Verl,
    /// TRL's conversational prompt and completion.
    Trl,
}

impl ExportFormat {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::Messages, Self::Atif, Self::Verl, Self::Trl];

    /// Returns the command-line name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Atif => "atif",
            Self::Verl => "verl",
            Self::Trl => "trl",
        }
    }
}

impl FromStr for ExportFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|format| format.name() == text).ok_or_else(|| {
            format!("unknown format `{text}`; there are {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

/// A conversation with optional advantages.
#[derive(Clone, Debug, PartialEq)]
pub struct Exported {
    /// Exported conversation.
    pub conversation: Conversation,
    /// Advantages per turn.
    pub advantages: Option<Vec<f64>>,
}

impl From<&Trajectory> for Exported {
    fn from(trajectory: &Trajectory) -> Self {
        Self { conversation: Conversation::of(trajectory), advantages: trajectory.advantages.clone() }
    }
}

impl From<Conversation> for Exported {
    fn from(conversation: Conversation) -> Self {
        Self { conversation, advantages: None }
    }
}

impl Exported {
    fn reward(&self) -> Option<f64> {
        self.conversation.rewards.as_ref().map(|rewards| rewards.iter().sum())
    }

    fn group(&self) -> String {
        match &self.conversation.group {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        }
    }

    fn tools(&self) -> Option<String> {
        let tools = &self.conversation.tools;
        let list: Vec<&str> = tools.iter().map(turnwise_core::Tool::json).collect();
        (!tools.is_empty()).then(|| format!("[{}]", list.join(",")))
    }

    fn header(&self) -> serde_json::Map<String, Value> {
        let Conversation { rewards, group, sample, step, task, success, .. } = &self.conversation;
        let mut header = serde_json::Map::new();
        let mut put = |key: &str, value: Value| {
            if !value.is_null() {
                header.insert(key.to_owned(), value);
            }
        };
        put("group", group.clone().unwrap_or_default());
        put("sample", json!(sample));
        put("step", json!(step));
        put("task", json!(task));
        put("success", json!(success));
        put("reward", json!(self.reward()));
        put("turn_rewards", json!(rewards));
        put("advantages", json!(self.advantages));
        header
    }

    fn line(&self) -> String {
        let mut line = self.header();
        let messages = self.conversation.messages.iter().map(crate::ChatMessage::to_openai);
        line.insert("messages".into(), messages.collect());
        let mut text = Value::Object(line).to_string();
        // As text, so schema keys keep their order.
        if let Some(tools) = self.tools() {
            text.pop();
            text.push_str(&format!(r#","tools":{tools}}}"#));
        }
        text
    }
}

/// Rejects file names that [`write()`] would reject.
///
/// # Errors
/// Fails if the extension does not match the format.
pub fn check_name(path: &Path, format: ExportFormat) -> Result<(), DumpError> {
    if format == ExportFormat::Atif && path.extension().is_none() {
        return Ok(());
    }
    let form = form_of(path).ok();
    let fits = match format {
        ExportFormat::Messages => form.is_some(),
        ExportFormat::Atif | ExportFormat::Verl => form.is_some_and(|form| form != Form::Parquet),
        ExportFormat::Trl => form == Some(Form::Parquet),
    };
    let endings = match format {
        ExportFormat::Messages => ".parquet, .jsonl or .jsonl.zst",
        ExportFormat::Atif => ".jsonl or .jsonl.zst, or be a folder's (without an ending)",
        ExportFormat::Verl => ".jsonl or .jsonl.zst",
        ExportFormat::Trl => ".parquet",
    };
    if fits {
        return Ok(());
    }
    Err(DumpError::file(path, format!("the name must end in {endings} for the format {}", format.name())))
}

/// Writes trajectories to a file, which is replaced atomically, or (only ATIF) to a folder.
///
/// # Errors
/// Fails if the extension does not match ([`check_name`]) or writing fails.
pub fn write(path: &Path, format: ExportFormat, trajectories: &[Exported]) -> Result<(), DumpError> {
    check_name(path, format)?;
    if format == ExportFormat::Atif && path.extension().is_none() {
        turnwise_files::create_folders(path).map_err(|error| DumpError::io(path, error))?;
        for one in trajectories {
            let file = path.join(format!("{}.json", atif::id(one)));
            save(&file, format!("{}\n", atif::trajectory(one)).as_bytes())?;
        }
        return Ok(());
    }
    let form = form_of(path)?;
    if form == Form::Parquet {
        let table = match format {
            ExportFormat::Trl => parquet::completions(trajectories),
            _ => parquet::messages(trajectories),
        };
        return save_table(path, table);
    }
    let mut lines = String::new();
    for (index, one) in trajectories.iter().enumerate() {
        lines.push_str(&match format {
            ExportFormat::Atif => atif::trajectory(one),
            ExportFormat::Verl => text::sample(one, index).to_string(),
            ExportFormat::Messages | ExportFormat::Trl => one.line(),
        });
        lines.push('\n');
    }
    save_lines(path, form, lines.as_bytes())
}
