//! One set of numbers for people (`metrics.jsonl`) and for TensorBoard.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::TrainError;
use crate::record::directory::{Phase, Position, RunDirectory, write_atomically};
use crate::record::tensorboard::EventWriter;

/// Named numbers of one step. Tags follow the field's habits: `train/reward/mean`, `loss/policy`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics(#[serde(deserialize_with = "turnwise_core::null_as_nan::map")] pub BTreeMap<String, f64>);

impl Metrics {
    /// Sets one number.
    pub fn set(&mut self, tag: &str, value: f64) {
        self.0.insert(tag.to_owned(), value);
    }

    /// Returns one number, if it was set.
    pub fn get(&self, tag: &str) -> Option<f64> {
        self.0.get(tag).copied()
    }
}

/// One line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricsLine {
    /// Phase of the step.
    pub phase: Phase,
    /// The step, counted from 1 inside its phase.
    pub step: u64,
    /// Seconds since 1970.
    pub time: f64,
    /// The numbers.
    #[serde(flatten)]
    pub metrics: Metrics,
}

/// Appends to `metrics.jsonl` and to an event file.
#[derive(Debug)]
pub struct MetricsWriter {
    lines: File,
    events: EventWriter,
    path: std::path::PathBuf,
    sft_steps: u64,
}

impl MetricsWriter {
    /// Opens the run's metrics for appending behind `position`: lines of later steps, left by an
    /// interrupted run, are dropped because they will be written again. `sft_steps` places the steps
    /// of reinforcement learning behind those of the warm start on TensorBoard's single axis.
    ///
    /// # Errors
    /// Fails if `metrics.jsonl` cannot be read or written, if a line before the last is invalid, or
    /// if no event file can be created.
    pub fn open(run: &RunDirectory, position: Position, sft_steps: u64) -> Result<Self, TrainError> {
        let path = run.path("metrics.jsonl");
        let kept: String = read_metrics(&path)?
            .into_iter()
            .filter(|line| Position { phase: line.phase, step: line.step } <= position)
            .map(|line| serde_json::to_string(&line).unwrap_or_default() + "\n")
            .collect();
        write_atomically(&path, kept.as_bytes())?;
        let lines =
            OpenOptions::new().append(true).open(&path).map_err(|error| TrainError::io(&path, error))?;
        let events =
            EventWriter::create(run.root(), seconds()).map_err(|error| TrainError::io(run.root(), error))?;
        Ok(Self { lines, events, path, sft_steps })
    }

    /// Writes the numbers of one finished step.
    ///
    /// # Errors
    /// `metrics.jsonl` or the event file cannot be written, for example on a full disk.
    pub fn write(&mut self, position: Position, metrics: &Metrics) -> Result<(), TrainError> {
        let Position { phase, step } = position;
        self.write_line(&MetricsLine { phase, step, time: seconds(), metrics: metrics.clone() })
    }

    /// Writes the numbers of a step that another run finished.
    pub(crate) fn write_line(&mut self, line: &MetricsLine) -> Result<(), TrainError> {
        let mut text =
            serde_json::to_string(line).map_err(|error| TrainError::file(&self.path, error.to_string()))?;
        text.push('\n');
        self.lines.write_all(text.as_bytes()).map_err(|error| TrainError::io(&self.path, error))?;
        let axis = match line.phase {
            Phase::Sft => line.step,
            Phase::Rl => self.sft_steps + line.step,
        };
        self.events
            .scalars(line.time, axis, line.metrics.0.iter().map(|(tag, value)| (tag.as_str(), *value)))
            .map_err(|error| TrainError::io(self.events.path(), error))
    }
}

/// Reads `metrics.jsonl`; an incomplete last line (after a kill) is left out.
///
/// # Errors
/// Fails if the file exists but cannot be read, or if a line before the last is invalid; the error
/// has its number.
pub fn read_metrics(path: &Path) -> Result<Vec<MetricsLine>, TrainError> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let file = fs::File::open(path).map_err(|error| TrainError::io(path, error))?;
    let mut lines = Vec::new();
    let mut torn = None;
    // As bytes: a line may be torn in the middle of a letter.
    for (index, line) in BufReader::new(file).split(b'\n').enumerate() {
        let line = line.map_err(|error| TrainError::io(path, error))?;
        if let Some(error) = torn.take() {
            return Err(error);
        }
        match serde_json::from_slice(&line) {
            Ok(parsed) => lines.push(parsed),
            Err(error) => torn = Some(TrainError::file(path, format!("line {}: {error}", index + 1))),
        }
    }
    Ok(lines)
}

/// Seconds since 1970, for time stamps only; no result depends on it.
pub fn seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |elapsed| elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_not_finite_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::create(folder.path()).unwrap();
        let position = Position { phase: Phase::Rl, step: 1 };
        let mut metrics = Metrics::default();
        metrics.set("env/distance", f64::INFINITY);
        metrics.set("loss/total", 0.25);
        MetricsWriter::open(&run, position, 0).unwrap().write(position, &metrics).unwrap();
        // Opened again, as a resume does, it is kept.
        MetricsWriter::open(&run, position, 0).unwrap();
        let lines = read_metrics(&run.path("metrics.jsonl")).unwrap();
        assert!(lines[0].metrics.get("env/distance").unwrap().is_nan());
        assert_eq!(lines[0].metrics.get("loss/total"), Some(0.25));
    }

    #[test]
    fn resuming_drops_the_steps_that_will_be_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::create(folder.path()).unwrap();
        let position = |phase, step| Position { phase, step };
        let mut writer = MetricsWriter::open(&run, position(Phase::Sft, 0), 2).unwrap();
        let mut metrics = Metrics::default();
        metrics.set("loss/policy", 0.1);
        for (phase, step) in [(Phase::Sft, 1), (Phase::Sft, 2), (Phase::Rl, 1), (Phase::Rl, 2)] {
            writer.write(position(phase, step), &metrics).unwrap();
        }
        drop(writer);
        // A kill in the middle of a line leaves half of it.
        let path = run.path("metrics.jsonl");
        let mut torn = fs::read(&path).unwrap();
        // In the middle of a letter, too.
        torn.extend(b"{\"phase\":\"rl\",\"\xc3");
        fs::write(&path, torn).unwrap();
        drop(MetricsWriter::open(&run, position(Phase::Rl, 1), 2).unwrap());
        let lines = read_metrics(&path).unwrap();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[2].step, 1);
        assert_eq!(lines[2].metrics.get("loss/policy"), Some(0.1));
    }

    #[test]
    fn a_broken_line_in_the_middle_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        fs::write(&path, "nonsense\n{\"phase\":\"rl\",\"step\":1,\"time\":0.0}\n").unwrap();
        assert!(read_metrics(&path).unwrap_err().to_string().contains("line 1"));
    }
}
