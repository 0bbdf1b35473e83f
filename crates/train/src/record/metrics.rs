//! Metrics in `metrics.jsonl` and TensorBoard.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::TrainError;
use crate::record::directory::{Phase, Position, RunDirectory, sync_folder, write_atomically};
use crate::record::tensorboard::{EventWriter, StepScalars, read_scalars};

/// Metrics of one step by tag, such as `train/reward/mean`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics(#[serde(deserialize_with = "turnwise_core::null_as_nan::map")] pub BTreeMap<String, f64>);

impl Metrics {
    /// Sets a metric.
    pub fn set(&mut self, tag: &str, value: f64) {
        self.0.insert(tag.to_owned(), value);
    }

    /// Returns a metric.
    pub fn get(&self, tag: &str) -> Option<f64> {
        self.0.get(tag).copied()
    }
}

/// A line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricsLine {
    /// Phase of the step.
    pub phase: Phase,
    /// Step within the phase, from 1.
    pub step: u64,
    /// Unix time in seconds.
    pub time: f64,
    /// Metrics of the step.
    #[serde(flatten)]
    pub metrics: Metrics,
}

/// Appends to `metrics.jsonl` and a TensorBoard event file.
#[derive(Debug)]
pub struct MetricsWriter {
    lines: File,
    events: EventWriter,
    path: std::path::PathBuf,
    sft_steps: u64,
}

impl MetricsWriter {
    /// Opens the run's metrics to append after `position`. Drops later lines and rebuilds missing
    /// ones, and calls `report` with a message about each. On TensorBoard's axis, RL steps come
    /// after the SFT steps.
    ///
    /// # Errors
    /// Fails if `metrics.jsonl` or an event file cannot be read or written.
    pub fn open(
        run: &RunDirectory,
        position: Position,
        sft_steps: u64,
        report: impl FnMut(String),
    ) -> Result<Self, TrainError> {
        let path = run.path("metrics.jsonl");
        let kept: String = recover(run, position, sft_steps, report)?
            .into_iter()
            .map(|line| serde_json::to_string(&line).unwrap_or_default() + "\n")
            .collect();
        write_atomically(&path, kept.as_bytes())?;
        let lines =
            OpenOptions::new().append(true).open(&path).map_err(|error| TrainError::io(&path, error))?;
        let events = EventWriter::create(run.root(), seconds())?;
        sync_folder(run.root())?;
        Ok(Self { lines, events, path, sft_steps })
    }

    /// Flushes the metrics. Must be called before writing a checkpoint, because a resume from the
    /// checkpoint does not repeat earlier steps.
    pub(crate) fn sync(&self) -> Result<(), TrainError> {
        self.lines.sync_data().map_err(|error| TrainError::io(&self.path, error))?;
        self.events.sync().map_err(|error| TrainError::io(self.events.path(), error))
    }

    /// Writes the metrics of a finished step.
    ///
    /// # Errors
    /// Fails on I/O errors.
    pub fn write(&mut self, position: Position, metrics: &Metrics) -> Result<(), TrainError> {
        let Position { phase, step } = position;
        self.write_line(&MetricsLine { phase, step, time: seconds(), metrics: metrics.clone() })
    }

    pub(crate) fn write_line(&mut self, line: &MetricsLine) -> Result<(), TrainError> {
        let mut text =
            serde_json::to_string(line).map_err(|error| TrainError::file(&self.path, error.to_string()))?;
        text.push('\n');
        self.lines.write_all(text.as_bytes()).map_err(|error| TrainError::io(&self.path, error))?;
        let axis = axis(Position { phase: line.phase, step: line.step }, self.sft_steps);
        self.events
            .scalars(line.time, axis, line.metrics.0.iter().map(|(tag, value)| (tag.as_str(), *value)))
            .map_err(|error| TrainError::io(self.events.path(), error))
    }
}

/// Reads `metrics.jsonl`, except an incomplete last line.
///
/// # Errors
/// Fails if the file cannot be read or an earlier line is invalid.
pub fn read_metrics(path: &Path) -> Result<Vec<MetricsLine>, TrainError> {
    let Readable { lines, unreadable } = readable_lines(path)?;
    match unreadable {
        Some(reason) => {
            let reason = format!("{reason}; `turnwise train --resume RUN` rebuilds the lines of a run");
            Err(TrainError::file(path, reason))
        }
        None => Ok(lines),
    }
}

struct Readable {
    lines: Vec<MetricsLine>,
    /// Error about the first invalid line, if any; an incomplete last line is not an error.
    unreadable: Option<String>,
}

fn readable_lines(path: &Path) -> Result<Readable, TrainError> {
    let mut found = Readable { lines: Vec::new(), unreadable: None };
    if !path.exists() {
        return Ok(found);
    }
    let file = fs::File::open(path).map_err(|error| TrainError::io(path, error))?;
    let mut torn = None;
    // An incomplete line may end inside a character.
    for (index, line) in BufReader::new(file).split(b'\n').enumerate() {
        let line = line.map_err(|error| TrainError::io(path, error))?;
        found.unreadable = found.unreadable.or_else(|| torn.take());
        match serde_json::from_slice(&line) {
            Ok(parsed) => found.lines.push(parsed),
            Err(error) => torn = Some(format!("line {}: {error}", index + 1)),
        }
    }
    Ok(found)
}

/// Returns one line per step up to `position`. Rebuilds missing lines from TensorBoard's files,
/// which have only single precision. If a step was repeated, returns the line of its last
/// repetition. `report` gets messages about lost and rebuilt lines.
pub(crate) fn recover(
    run: &RunDirectory,
    position: Position,
    sft_steps: u64,
    mut report: impl FnMut(String),
) -> Result<Vec<MetricsLine>, TrainError> {
    let path = run.path("metrics.jsonl");
    let Readable { lines, unreadable } = readable_lines(&path)?;
    let at = |line: &MetricsLine| Position { phase: line.phase, step: line.step };
    let mut kept: BTreeMap<Position, MetricsLine> =
        lines.into_iter().map(|line| (at(&line), line)).filter(|(of, _)| *of <= position).collect();
    let sft_done = if position.phase == Phase::Sft { position.step } else { sft_steps };
    let steps = |phase, last| (1..=last).map(move |step| Position { phase, step });
    let mut lost: Vec<Position> =
        steps(Phase::Sft, sft_done).chain(steps(Phase::Rl, position.rl_step())).collect();
    lost.retain(|position| !kept.contains_key(position));
    let mut told = unreadable.map_or_else(Vec::new, |reason| vec![format!("{reason}; the line is dropped")]);
    if !lost.is_empty() {
        told.push(format!("the lines of {} are missing", labels(&lost)));
        let mut events = read_scalars(run.root()).map_err(|error| TrainError::io(run.root(), error))?;
        events.sort_by(|a, b| a.wall_time.total_cmp(&b.wall_time));
        let events: BTreeMap<u64, StepScalars> =
            events.into_iter().map(|event| (event.step, event)).collect();
        let rebuilt: BTreeMap<Position, MetricsLine> = lost
            .iter()
            .filter_map(|&position| {
                Some((position, line_of(position, events.get(&axis(position, sft_steps))?)))
            })
            .collect();
        lost.retain(|position| !rebuilt.contains_key(position));
        if !rebuilt.is_empty() {
            let from = if lost.is_empty() { String::new() } else { labels(rebuilt.keys()) + " " };
            told.push(format!("{from}rebuilt from TensorBoard's files, in single precision"));
        }
        if !lost.is_empty() {
            told.push(format!("TensorBoard's files do not have {}", labels(&lost)));
        }
        kept.extend(rebuilt);
    }
    if !told.is_empty() {
        report(format!("{}: {}", path.display(), told.join("; ")));
    }
    Ok(kept.into_values().collect())
}

fn line_of(position: Position, event: &StepScalars) -> MetricsLine {
    // f32 0.1 becomes f64 0.1.
    let double = |value: f32| value.to_string().parse().unwrap_or_else(|_| f64::from(value));
    let metrics = event.scalars.iter().map(|(tag, value)| (tag.clone(), double(*value))).collect();
    let Position { phase, step } = position;
    MetricsLine { phase, step, time: event.wall_time, metrics: Metrics(metrics) }
}

fn axis(Position { phase, step }: Position, sft_steps: u64) -> u64 {
    match phase {
        Phase::Sft => step,
        Phase::Rl => sft_steps + step,
    }
}

fn labels<'a>(positions: impl IntoIterator<Item = &'a Position>) -> String {
    let mut ranges: Vec<(Position, Position)> = Vec::new();
    for &position in positions {
        match ranges.last_mut() {
            Some((_, last)) if last.phase == position.phase && last.step + 1 == position.step => {
                *last = position;
            }
            _ => ranges.push((position, position)),
        }
    }
    let text = |(first, last): &(Position, Position)| {
        if first == last { first.label() } else { format!("{} to {}", first.label(), last.label()) }
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// Returns the Unix time in seconds; no result depends on it.
pub fn seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |elapsed| elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(report: String) {
        std::panic::panic_any(report);
    }

    #[test]
    fn a_number_that_is_not_finite_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::create(folder.path()).unwrap();
        let position = Position { phase: Phase::Rl, step: 1 };
        let mut metrics = Metrics::default();
        metrics.set("env/distance", f64::INFINITY);
        metrics.set("loss/total", 0.25);
        let start = Position { step: 0, ..position };
        MetricsWriter::open(&run, start, 0, whole).unwrap().write(position, &metrics).unwrap();
        MetricsWriter::open(&run, position, 0, whole).unwrap();
        let lines = read_metrics(&run.path("metrics.jsonl")).unwrap();
        assert!(lines[0].metrics.get("env/distance").unwrap().is_nan());
        assert_eq!(lines[0].metrics.get("loss/total"), Some(0.25));
    }

    #[test]
    fn resuming_drops_the_steps_that_will_be_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::create(folder.path()).unwrap();
        let position = |phase, step| Position { phase, step };
        let mut writer = MetricsWriter::open(&run, position(Phase::Sft, 0), 2, whole).unwrap();
        let mut metrics = Metrics::default();
        metrics.set("loss/policy", 0.1);
        for (phase, step) in [(Phase::Sft, 1), (Phase::Sft, 2), (Phase::Rl, 1), (Phase::Rl, 2)] {
            writer.write(position(phase, step), &metrics).unwrap();
        }
        drop(writer);
        let path = run.path("metrics.jsonl");
        let mut torn = fs::read(&path).unwrap();
        torn.extend(b"{\"phase\":\"rl\",\"\xc3");
        fs::write(&path, torn).unwrap();
        drop(MetricsWriter::open(&run, position(Phase::Rl, 1), 2, whole).unwrap());
        let lines = read_metrics(&path).unwrap();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[2].step, 1);
        assert_eq!(lines[2].metrics.get("loss/policy"), Some(0.1));
    }

    /// A run whose second process repeated the last step.
    fn run_of_two_processes() -> (tempfile::TempDir, RunDirectory) {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::create(folder.path()).unwrap();
        let at = |phase, step| Position { phase, step };
        let write = |from: Position, loss: f64, steps: &[Position]| {
            let mut writer = MetricsWriter::open(&run, from, 2, whole).unwrap();
            for &position in steps {
                let mut metrics = Metrics::default();
                metrics.set("loss/total", loss + position.step as f64);
                metrics.set("count", 16_777_217.0);
                writer.write(position, &metrics).unwrap();
            }
        };
        let steps = [at(Phase::Sft, 1), at(Phase::Sft, 2), at(Phase::Rl, 1), at(Phase::Rl, 2)];
        write(at(Phase::Sft, 0), 0.1, &steps);
        write(at(Phase::Rl, 1), 0.7, &steps[3..]);
        (folder, run)
    }

    const END: Position = Position { phase: Phase::Rl, step: 2 };

    #[test]
    fn lost_lines_are_reported_and_rebuilt() {
        let (_folder, run) = run_of_two_processes();
        let path = run.path("metrics.jsonl");
        let whole_file = fs::read_to_string(&path).unwrap();
        let written = read_metrics(&path).unwrap();
        let lines: Vec<&str> = whole_file.lines().collect();
        let garbled = [lines[0], "{\"phase\":\"sft\",\"st\u{0}", lines[2], lines[3], ""].join("\n");
        for (text, expected) in [
            (None, "sft-000001 to sft-000002, step-000001 to step-000002 are missing; rebuilt from"),
            (Some(String::new()), "sft-000001 to sft-000002, step-000001 to step-000002 are missing"),
            (Some(format!("{}\n", lines[0])), "sft-000002, step-000001 to step-000002 are missing"),
            (Some(format!("{}\n{}\n{}\n", lines[0], lines[1], lines[3])), "of step-000001 are missing"),
            (Some(whole_file[..whole_file.len() - 9].to_owned()), "of step-000002 are missing"),
            (Some(garbled), "line 2: control character"),
        ] {
            match &text {
                None => fs::remove_file(&path).unwrap(),
                Some(text) => fs::write(&path, text).unwrap(),
            }
            let mut reports = Vec::new();
            MetricsWriter::open(&run, END, 2, |report| reports.push(report)).unwrap();
            assert!(reports.len() == 1 && reports[0].contains(expected), "{reports:?}");
            assert!(
                reports[0].contains("rebuilt from TensorBoard's files, in single precision"),
                "{reports:?}"
            );
            let read = read_metrics(&path).unwrap();
            assert_eq!(read.len(), 4, "{text:?}");
            for (line, written) in read.iter().zip(&written) {
                let facts = |line: &MetricsLine| (line.phase, line.step, line.time);
                assert_eq!(facts(line), facts(written));
                assert_eq!(line.metrics.get("loss/total"), written.metrics.get("loss/total"));
            }
            // The last step comes from the second process; a rebuilt count is rounded.
            assert_eq!(read[3].metrics.get("loss/total"), Some(2.7));
            let counts: Vec<f64> = read.iter().filter_map(|line| line.metrics.get("count")).collect();
            assert!(counts.len() == 4 && counts.contains(&16_777_216.0), "{counts:?}");
            MetricsWriter::open(&run, END, 2, whole).unwrap();
        }
    }

    #[test]
    fn what_no_file_has_is_named_and_the_run_goes_on() {
        let (_folder, run) = run_of_two_processes();
        for entry in fs::read_dir(run.root()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                fs::remove_file(path).unwrap();
            }
        }
        let mut reports = Vec::new();
        let mut writer = MetricsWriter::open(&run, END, 2, |report| reports.push(report)).unwrap();
        let all = "sft-000001 to sft-000002, step-000001 to step-000002";
        assert!(reports[0].ends_with(&format!("TensorBoard's files do not have {all}")), "{reports:?}");
        assert!(!reports[0].contains("rebuilt"), "{reports:?}");
        writer.write(Position { step: 3, ..END }, &Metrics::default()).unwrap();
        assert_eq!(read_metrics(&run.path("metrics.jsonl")).unwrap().len(), 1);
    }

    #[test]
    fn a_broken_line_in_the_middle_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        fs::write(&path, "nonsense\n{\"phase\":\"rl\",\"step\":1,\"time\":0.0}\n").unwrap();
        let error = read_metrics(&path).unwrap_err().to_string();
        assert!(error.contains("line 1") && error.contains("--resume"), "{error}");
    }
}
