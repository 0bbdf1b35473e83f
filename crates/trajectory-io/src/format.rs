//! File formats and their readers.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde_json::value::RawValue;

use crate::conversation::{self, atif, documents, messages, sharegpt};
use crate::dump::{Dump, assemble};
use crate::{DumpError, lines, parquet_rows, trl, turnwise, verifiers, verl};
use turnwise_core::TurnField;

/// Dump format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Written by Turnwise or by hand.
    Turnwise,
    /// verl's `trainer.rollout_data_dir`.
    Verl,
    /// TRL's `completions_*.parquet`.
    Trl,
    /// verifiers' `traces.jsonl` and `results.jsonl`.
    Verifiers,
    /// OpenAI messages.
    Messages,
    /// ShareGPT's conversations.
    ShareGpt,
    /// Harbor's trajectory format.
    Atif,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 7] =
        [Self::Turnwise, Self::Verl, Self::Trl, Self::Verifiers, Self::Messages, Self::ShareGpt, Self::Atif];

    /// Returns the command-line name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Turnwise => "turnwise",
            Self::Verl => "verl",
            Self::Trl => "trl",
            Self::Verifiers => "verifiers",
            Self::Messages => "messages",
            Self::ShareGpt => "sharegpt",
            Self::Atif => "atif",
        }
    }

    /// Returns true if files of this format can contain the field.
    pub fn has(self, field: TurnField) -> bool {
        match field {
            TurnField::Observation | TurnField::Action => true,
            TurnField::Entropies => matches!(self, Self::Turnwise | Self::Verifiers),
            TurnField::Progress | TurnField::StateValue | TurnField::Values | TurnField::Credit => {
                self == Self::Turnwise
            }
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|format| format.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("unknown format `{text}`; there are {names}")
        })
    }
}

/// Options for reading a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadOptions {
    /// File format; `None` detects it.
    pub format: Option<Format>,
    /// Reward columns of a TRL file and their weights; by default all reward columns, with weight 1.
    pub rewards: Vec<(String, f64)>,
}

/// Reads a dump, or a folder of Harbor trials.
///
/// # Errors
/// The error names the file, line and problem.
pub fn read(path: &Path, options: &ReadOptions) -> Result<Dump, DumpError> {
    let format = match options.format {
        Some(format) => format,
        None => detect(path)?,
    };
    let mut notes = Vec::new();
    let records = match format {
        Format::Messages => conversation::records(messages::conversations(path)?),
        Format::ShareGpt => conversation::records(sharegpt::conversations(path)?),
        Format::Atif => conversation::records(atif::conversations(path, &mut notes)?),
        Format::Turnwise => turnwise::records(path, &mut notes)?,
        Format::Verl => verl::records(path)?,
        Format::Trl => trl::records(path, &options.rewards, &mut notes)?,
        Format::Verifiers => verifiers::records(path, &mut notes)?,
    };
    if !options.rewards.is_empty() && format != Format::Trl {
        let reason = format!("reward columns can be chosen for trl dumps only, and this is read as {format}");
        return Err(DumpError::file(path, reason));
    }
    let unrewarded = records.iter().filter(|record| record.turns.iter().any(|turn| !turn.has_reward)).count();
    if unrewarded > 0 {
        notes.push(format!("{unrewarded} of {} trajectories have no reward", records.len()));
    }
    let batches = assemble(records);
    if batches.is_empty() {
        return Err(DumpError::file(path, "has no trajectories"));
    }
    Ok(Dump { path: path.to_owned(), format, batches, notes })
}

pub(crate) fn detect(path: &Path) -> Result<Format, DumpError> {
    if !lines::is_file(path)? {
        let reason = "this is a pipe or a device, not a file: it can be read only once, and the format is found by reading its \
                      beginning; name the format (turnwise, verl, verifiers, messages, sharegpt or atif), or write it to a file first";
        return Err(DumpError::file(path, reason));
    }
    if path.is_dir() && !atif::trials(path)?.is_empty() {
        return Ok(Format::Atif);
    }
    if lines::is_parquet(path)? {
        let columns = parquet_rows::column_names(path)?;
        let has = |name: &str| columns.iter().any(|column| column == name);
        return Ok(match (has("messages"), has("conversations")) {
            (true, _) => Format::Messages,
            (false, true) => Format::ShareGpt,
            (false, false) => Format::Trl,
        });
    }
    let Some((line, text)) = documents::first(path)? else {
        return Err(DumpError::file(path, "has no trajectories"));
    };
    // Values stay text, because parsed ones take far more memory. What is not an object has no keys.
    let values: BTreeMap<String, &RawValue> = serde_json::from_str(&text).unwrap_or_default();
    let has = |keys: &[&str]| keys.iter().all(|&key| values.contains_key(key));
    let is_atif = values.get("schema_version").is_some_and(|version| version.get().starts_with("\"ATIF"));
    Ok(if has(&["turns"]) {
        Format::Turnwise
    } else if has(&["messages"]) {
        Format::Messages
    } else if has(&["conversations"]) {
        Format::ShareGpt
    } else if is_atif {
        Format::Atif
    } else if has(&["traces"]) || has(&["completion", "reward"]) {
        Format::Verifiers
    } else if has(&["input", "output"]) {
        Format::Verl
    } else {
        let keys: Vec<&str> = values.keys().map(String::as_str).collect();
        let reason = format!(
            "this is not a trajectory in a known format (its keys: {}). Turnwise's own and hand-written lines have `turns`, \
             conversations `messages`, ShareGPT's `conversations`, ATIF's `schema_version` and `steps`, verl's `input`, \
             `output` and `score`, verifiers' `traces` or `completion` and `reward`; name the format if you know better",
            if keys.is_empty() { "none".to_owned() } else { keys.join(", ") }
        );
        return Err(DumpError::line(path, line, reason));
    })
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_read_once_its_format_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let line = r#"{"input": "a", "output": "b", "score": 1, "step": 1}"#;
        let read_as = |format: Option<Format>| {
            let command = format!("printf '%s\\n' '{line}' '{line}' > '{}'", path.display());
            let mut writer = std::process::Command::new("sh").args(["-c", &command]).spawn().unwrap();
            let read = read(&path, &ReadOptions { format, ..ReadOptions::default() });
            let _ = writer.kill();
            writer.wait().unwrap();
            read
        };
        let dump = read_as(Some(Format::Verl)).unwrap();
        assert_eq!(dump.batches[0].batch.groups[0].trajectories.len(), 2);
        let error = read_as(None).unwrap_err().to_string();
        assert!(
            error.contains("pipe: this is a pipe or a device, not a file")
                && error.contains("name the format"),
            "{error}"
        );
        let error = read_as(Some(Format::Trl)).unwrap_err().to_string();
        assert!(error.contains("Parquet is read from its end"), "{error}");
    }
}
