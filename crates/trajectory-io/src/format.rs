//! Formats of files, and the reader of each.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde_json::Value;

use crate::dump::{Dump, assemble};
use crate::{DumpError, lines, trl, turnwise, verifiers, verl};
use turnwise_core::TurnField;

/// Writer of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Turnwise, or somebody by hand.
    Turnwise,
    /// verl's `trainer.rollout_data_dir`.
    Verl,
    /// TRL's `completions_*.parquet`.
    Trl,
    /// verifiers' `traces.jsonl` and `results.jsonl`.
    Verifiers,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Turnwise, Self::Verl, Self::Trl, Self::Verifiers];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Turnwise => "turnwise",
            Self::Verl => "verl",
            Self::Trl => "trl",
            Self::Verifiers => "verifiers",
        }
    }

    /// Returns true if such a dump can have this field.
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

/// Options of reading a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadOptions {
    /// Its format; found from the file if nothing is said.
    pub format: Option<Format>,
    /// Reward columns of a TRL dump that count, with their weights; all with weight 1 if empty.
    pub rewards: Vec<(String, f64)>,
}

/// Reads a dump.
///
/// # Errors
/// Names the file, the line and what is wrong with it.
pub fn read(path: &Path, options: &ReadOptions) -> Result<Dump, DumpError> {
    let format = match options.format {
        Some(format) => format,
        None => detect(path)?,
    };
    let mut notes = Vec::new();
    let records = match format {
        Format::Turnwise => turnwise::records(path, &mut notes)?,
        Format::Verl => verl::records(path)?,
        Format::Trl => trl::records(path, &options.rewards, &mut notes)?,
        Format::Verifiers => verifiers::records(path, &mut notes)?,
    };
    if !options.rewards.is_empty() && format != Format::Trl {
        let reason = format!("reward columns can be chosen for trl dumps only, and this is read as {format}");
        return Err(DumpError::file(path, reason));
    }
    let batches = assemble(records);
    if batches.is_empty() {
        return Err(DumpError::file(path, "there is no trajectory in it"));
    }
    Ok(Dump { path: path.to_owned(), format, batches, notes })
}

/// Finds the format from the file's first bytes or its first line.
fn detect(path: &Path) -> Result<Format, DumpError> {
    if !lines::is_file(path)? {
        let reason = "this is no file but a pipe or a device, which can be read only once, and the format is found by reading its \
                      beginning; name the format (turnwise, verl or verifiers), or write it to a file first";
        return Err(DumpError::file(path, reason));
    }
    if lines::is_parquet(path)? {
        return Ok(Format::Trl);
    }
    let mut found = None;
    lines::each(path, |line, text| {
        let value: Value = lines::parse(path, line, text, |_| false)?;
        let has = |keys: &[&str]| keys.iter().all(|key| value.get(key).is_some());
        found = if has(&["turns"]) {
            Some(Format::Turnwise)
        } else if has(&["traces"]) || has(&["completion", "reward"]) {
            Some(Format::Verifiers)
        } else if has(&["input", "output"]) {
            Some(Format::Verl)
        } else {
            let keys: Vec<&str> =
                value.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
            let reason = format!(
                "this is no trajectory in a known format (its keys: {}). Turnwise's own and hand-written \
                 lines have `turns`, verl's `input`, `output` and `score`, verifiers' `traces` or \
                 `completion` and `reward`; name the format if you know better",
                if keys.is_empty() { "none".to_owned() } else { keys.join(", ") }
            );
            return Err(DumpError::line(path, line, reason));
        };
        Ok(false)
    })?;
    found.ok_or_else(|| DumpError::file(path, "there is no trajectory in it"))
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
            error.contains("pipe: this is no file but a pipe") && error.contains("name the format"),
            "{error}"
        );
        let error = read_as(Some(Format::Trl)).unwrap_err().to_string();
        assert!(error.contains("Parquet is read from its end"), "{error}");
    }
}
