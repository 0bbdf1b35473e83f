use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use pyo3::exceptions::{PyFileNotFoundError, PyOSError};
use pyo3::prelude::*;
use serde_json::{Map, Value, json};
use turnwise_core::Trajectory;
use turnwise_trajectory_io::{DumpError, Format, Origin, ReadOptions, TurnExtras, read};

use crate::refused;

/// Returns the text of a plain or zstd-compressed file.
#[pyfunction]
pub(crate) fn read_text(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    py.detach(|| {
        let fail = |error: io::Error| failed(&path, &error);
        let mut text = String::new();
        turnwise_files::open(&path).map_err(fail)?.read_to_string(&mut text).map_err(fail)?;
        Ok(text)
    })
}

pub(crate) fn failed(path: &Path, error: &io::Error) -> PyErr {
    let text = format!("{}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::InvalidData => refused(text),
        io::ErrorKind::NotFound => PyFileNotFoundError::new_err(text),
        _ => PyOSError::new_err(text),
    }
}

/// Converts TOML to JSON; dates become strings.
#[pyfunction]
pub(crate) fn toml_to_json(text: &str) -> PyResult<String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| refused(error))?;
    serde_json::to_string(&table).map_err(refused)
}

/// Reads a dump as a JSON list that `credit` accepts.
#[pyfunction]
#[pyo3(signature = (path, format=None, rewards=Vec::new()))]
pub(crate) fn read_dump(
    py: Python<'_>,
    path: PathBuf,
    format: Option<&str>,
    rewards: Vec<(String, f64)>,
) -> PyResult<(String, Vec<String>)> {
    let format = format.map(str::parse::<Format>).transpose().map_err(refused)?;
    py.detach(|| {
        let dump = read(&path, &ReadOptions { format, rewards }).map_err(|error| match error {
            DumpError::Io { .. } => PyOSError::new_err(error.to_string()),
            DumpError::File { .. } | DumpError::Line { .. } => refused(error),
        })?;
        let mut lines: Vec<(usize, Value)> = Vec::new();
        for step in &dump.batches {
            for (group, origins) in step.batch.groups.iter().zip(&step.origins) {
                let pairs = group.trajectories.iter().zip(origins);
                lines.extend(pairs.map(|(trajectory, origin)| (origin.line, written(trajectory, origin))));
            }
        }
        lines.sort_by_key(|(line, _)| *line);
        let lines: Vec<Value> = lines.into_iter().map(|(_, line)| line).collect();
        Ok((serde_json::to_string(&lines).map_err(refused)?, dump.notes))
    })
}

fn written(trajectory: &Trajectory, origin: &Origin) -> Value {
    let turns: Vec<Value> =
        trajectory.turns.iter().zip(&origin.turns).map(|(turn, extras)| written_turn(turn, extras)).collect();
    let task = &trajectory.task;
    let mut line = json!({
        "group": origin.group,
        "sample": trajectory.sample,
        "step": trajectory.step,
        "task": if task.id.is_empty() && task.kind.is_empty() { json!(task.goal) } else { json!(task) },
        "turns": turns,
    });
    optional(&mut line, "tools", (!trajectory.tools.is_empty()).then(|| json!(trajectory.tools)));
    optional(&mut line, "success", origin.success.map(Value::from));
    let last = &trajectory.final_observation;
    optional(&mut line, "final_observation", (!last.is_empty()).then(|| json!(last)));
    optional(&mut line, "final_state_key", trajectory.final_state_key.as_ref().map(|key| json!(key)));
    line
}

fn written_turn(turn: &turnwise_core::Turn, extras: &TurnExtras) -> Value {
    let mut line = json!({ "valid": turn.valid });
    optional(&mut line, "reward", extras.has_reward.then(|| json!(turn.reward)));
    optional(&mut line, "parts", (!turn.parts.is_empty()).then(|| json!(turn.parts)));
    optional(&mut line, "calls", (!turn.calls.is_empty()).then(|| json!(turn.calls)));
    // A state may be named without its text.
    let words = extras.has_observation && (turn.state_key.is_none() || !turn.observation.is_empty());
    optional(&mut line, "observation", words.then(|| json!(turn.observation)));
    optional(&mut line, "state_key", turn.state_key.as_ref().map(|key| json!(key)));
    optional(&mut line, "action", extras.has_action.then(|| json!(turn.action)));
    optional(&mut line, "response", (!turn.response.is_empty()).then(|| json!(turn.response)));
    optional(&mut line, "shaped_reward", turn.shaped_reward.map(Value::from));
    optional(&mut line, "progress", turn.progress.map(Value::from));
    optional(&mut line, "state_value", turn.state_value.map(Value::from));
    optional(&mut line, "credit", extras.credit.map(Value::from));
    optional(&mut line, "values", extras.values.as_ref().map(|values| json!(values)));
    for (key, numbers) in [("entropies", &turn.entropies), ("old_logprobs", &turn.old_logprobs)] {
        optional(&mut line, key, (!numbers.is_empty()).then(|| json!(numbers)));
    }
    optional(&mut line, "response_ids", (!turn.response_ids.is_empty()).then(|| json!(turn.response_ids)));
    line
}

fn optional(line: &mut Value, key: &str, value: Option<Value>) {
    if let (Some(map), Some(value)) = (line.as_object_mut().map(|map: &mut Map<String, Value>| map), value) {
        map.insert(key.to_owned(), value);
    }
}
