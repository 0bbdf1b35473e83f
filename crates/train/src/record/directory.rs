//! The run directory.
//!
//! ```text
//! runs/<name>/
//!   config.toml  panel.json  status.json  log.jsonl
//!   metrics.jsonl  events.out.tfevents.*
//!   trajectories/step-000123.jsonl.zst
//!   checkpoints/step-000123/{policy, optimizer.safetensors, state.json, COMPLETE}
//!   eval/step-000123.json
//! ```
//!
//! Files are renamed into place when complete. A resume truncates `metrics.jsonl` and TurnRD's
//! records to the checkpoint, but not `log.jsonl` and TensorBoard's files.

use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use turnwise_core::{Batch, LearnError, Trajectory};

use crate::TrainError;
pub use crate::record::position::{Phase, Position};

/// State of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// A process is working on the run, or was killed before it could record another state.
    Running,
    /// The run stopped early and can be resumed.
    Interrupted,
    /// All steps are done.
    Finished,
    /// The run ended with an error, which `Status::reason` states.
    Failed,
}

/// Contents of `status.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// State.
    pub state: RunStatus,
    /// Position.
    pub position: Position,
    /// Error that ended the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Current warnings that the run is not learning, or will soon stop learning.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A run directory on disk.
#[derive(Clone, Debug)]
pub struct RunDirectory {
    root: PathBuf,
}

impl RunDirectory {
    /// Creates a run directory.
    ///
    /// # Errors
    /// Fails like [`RunDirectory::check_free`], or on I/O errors.
    pub fn create(root: &Path) -> Result<Self, TrainError> {
        Self::check_free(root)?;
        for folder in ["checkpoints", "trajectories", "eval"] {
            let path = root.join(folder);
            create_folders(&path)?;
        }
        Ok(Self { root: root.to_path_buf() })
    }

    /// Returns a run directory without creating it.
    ///
    /// # Errors
    /// Fails like [`RunDirectory::check_free`].
    pub fn planned(root: &Path) -> Result<Self, TrainError> {
        Self::check_free(root)?;
        Ok(Self { root: root.to_path_buf() })
    }

    /// Rejects a folder that already has a run.
    ///
    /// # Errors
    /// Fails if `root` has a `config.toml`; the error states how to continue that run.
    pub fn check_free(root: &Path) -> Result<(), TrainError> {
        if root.join("config.toml").exists() {
            return Err(TrainError::file(
                root,
                "already holds a run; continue it with `turnwise train --resume <run>`, or choose another `name`",
            ));
        }
        Ok(())
    }

    /// Opens an existing run.
    ///
    /// # Errors
    /// Fails if `root` has no `config.toml`.
    pub fn open(root: &Path) -> Result<Self, TrainError> {
        if !root.join("config.toml").is_file() {
            return Err(TrainError::file(root, "is not a run directory: it has no config.toml"));
        }
        Ok(Self { root: root.to_path_buf() })
    }

    /// Returns the folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the path of a file or folder in the run.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Returns the folder of checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.root.join("checkpoints")
    }

    /// Writes a file of the run atomically.
    ///
    /// # Errors
    /// Fails on I/O errors.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), TrainError> {
        write_atomically(&self.root.join(name), content)
    }

    /// Writes a value as indented JSON.
    ///
    /// # Errors
    /// Fails if JSON cannot represent the value, or on I/O errors.
    pub fn write_json<T: Serialize>(&self, name: &str, value: &T) -> Result<(), TrainError> {
        let mut text = serde_json::to_string_pretty(value)
            .map_err(|error| TrainError::file(&self.root.join(name), error.to_string()))?;
        text.push('\n');
        self.write(name, text.as_bytes())
    }

    /// Reads a JSON file of the run.
    ///
    /// # Errors
    /// Returns the file's name if the file cannot be read or does not contain a `T`.
    pub fn read_json<T: for<'a> Deserialize<'a>>(&self, name: &str) -> Result<T, TrainError> {
        let path = self.root.join(name);
        let text = fs::read_to_string(&path).map_err(|error| TrainError::io(&path, error))?;
        serde_json::from_str(&text).map_err(|error| TrainError::file(&path, error.to_string()))
    }

    /// Writes `status.json`.
    ///
    /// # Errors
    /// Fails on I/O errors.
    pub(crate) fn set_status(
        &self,
        state: RunStatus,
        position: Position,
        warnings: Vec<String>,
    ) -> Result<(), TrainError> {
        self.write_json("status.json", &Status { state, position, reason: None, warnings })
    }

    /// Records that the run failed.
    ///
    /// # Errors
    /// Fails on I/O errors.
    pub(crate) fn set_failed(&self, position: Position, reason: &str) -> Result<(), TrainError> {
        let reason = Some(reason.to_owned());
        let state = RunStatus::Failed;
        self.write_json("status.json", &Status { state, position, reason, warnings: Vec::new() })
    }

    /// Writes the batch of a failed update to `failed/`, and names the file in the returned error.
    pub(crate) fn keep_diverged(&self, error: TrainError, position: Position, batch: &Batch) -> TrainError {
        // The batch does not explain failures of disk, peer or service.
        match error {
            TrainError::Learn(LearnError::Unavailable(_)) => return error,
            TrainError::Learn(_) | TrainError::Objective(_) => {}
            _ => return error,
        }
        let position = Position { step: position.step + 1, ..position };
        let path = self.root.join("failed").join(format!("{}.jsonl.zst", position.label()));
        match write_trajectories(&path, batch.trajectories()) {
            Ok(()) => TrainError::Diverged {
                position: position.label(),
                source: Box::new(error),
                batch: path.display().to_string(),
                run: self.root.display().to_string(),
            },
            Err(_) => error,
        }
    }

    /// Writes one step's trajectories to `trajectories/POSITION.jsonl.zst`.
    ///
    /// # Errors
    /// Fails on I/O errors.
    pub fn write_trajectories<'a>(
        &self,
        position: Position,
        trajectories: impl Iterator<Item = &'a Trajectory>,
    ) -> Result<PathBuf, TrainError> {
        let path = self.trajectories(position);
        write_trajectories(&path, trajectories)?;
        Ok(path)
    }

    /// Returns the path of one step's trajectories.
    pub fn trajectories(&self, position: Position) -> PathBuf {
        self.root.join("trajectories").join(format!("{}.jsonl.zst", position.label()))
    }

    /// Returns the RL steps with trajectories, in order.
    ///
    /// # Errors
    /// Fails if the folder cannot be read.
    pub fn trajectory_steps(&self) -> Result<Vec<u64>, TrainError> {
        let folder = self.root.join("trajectories");
        let entries = fs::read_dir(&folder).map_err(|error| TrainError::io(&folder, error))?;
        let position = |name: &str| name.strip_suffix(".jsonl.zst")?.parse::<Position>().ok();
        let found = entries.flatten().filter_map(|entry| position(entry.file_name().to_str()?));
        let mut steps: Vec<u64> =
            found.filter(|found| found.phase == Phase::Rl).map(|found| found.step).collect();
        steps.sort_unstable();
        Ok(steps)
    }
}

/// Writes trajectories as JSON lines, with zstd if the name ends in `.zst`.
///
/// # Errors
/// Fails on I/O errors.
pub fn write_trajectories<'a>(
    path: &Path,
    trajectories: impl Iterator<Item = &'a Trajectory>,
) -> Result<(), TrainError> {
    write_lines(path, trajectories)
}

/// Writes values as JSON lines, with zstd if the name ends in `.zst`.
///
/// # Errors
/// Fails on I/O errors.
pub fn write_lines<T: Serialize>(path: &Path, values: impl Iterator<Item = T>) -> Result<(), TrainError> {
    let mut lines = Vec::new();
    for value in values {
        serde_json::to_writer(&mut lines, &value)
            .map_err(|error| TrainError::file(path, error.to_string()))?;
        lines.push(b'\n');
    }
    if path.extension().is_some_and(|extension| extension == "zst") {
        lines = zstd::encode_all(lines.as_slice(), 3).map_err(|error| TrainError::io(path, error))?;
    }
    write_atomically(path, &lines)
}

/// Reads trajectories written by [`write_trajectories`].
///
/// # Errors
/// Returns the file and the invalid line.
pub fn read_trajectories(path: &Path) -> Result<Vec<Trajectory>, TrainError> {
    read_lines(path, |trajectory: &Trajectory| trajectory.schema_version)
}

/// Reads values written by [`write_lines`]. `version` returns a value's
/// [`turnwise_core::SCHEMA_VERSION`].
///
/// # Errors
/// Returns the file and the line that is invalid or has another version.
pub fn read_lines<T: DeserializeOwned>(
    path: &Path,
    version: impl Fn(&T) -> u32,
) -> Result<Vec<T>, TrainError> {
    let reader = turnwise_files::open(path).map_err(|error| TrainError::io(path, error))?;
    let mut values = Vec::new();
    for (index, line) in turnwise_files::lines(reader).enumerate() {
        let line = line.map_err(|error| match error.kind() {
            std::io::ErrorKind::FileTooLarge => {
                TrainError::file(path, format!("line {}: {error}", index + 1))
            }
            _ => TrainError::io(path, error),
        })?;
        if line.trim().is_empty() {
            continue;
        }
        let value: T = serde_json::from_str(&line)
            .map_err(|error| TrainError::file(path, format!("line {}: {error}", index + 1)))?;
        let version = version(&value);
        if !(1..=turnwise_core::SCHEMA_VERSION).contains(&version) {
            return Err(TrainError::file(
                path,
                format!(
                    "line {}: schema_version is {version}; this program reads 1 to {}",
                    index + 1,
                    turnwise_core::SCHEMA_VERSION
                ),
            ));
        }
        values.push(value);
    }
    Ok(values)
}

/// Writes a file atomically, creating its folder if needed.
///
/// # Errors
/// Fails if the path names no file, or on I/O errors.
pub fn write_atomically(path: &Path, content: &[u8]) -> Result<(), TrainError> {
    if let Some(parent) = path.parent() {
        create_folders(parent)?;
    }
    turnwise_files::write_atomically(path, content).map_err(|error| TrainError::io(path, error))
}

pub(crate) fn first_free(path: impl Fn(u32) -> PathBuf) -> PathBuf {
    let mut number = 1;
    while path(number).exists() {
        number += 1;
    }
    path(number)
}

pub(crate) fn sync_folder(folder: &Path) -> Result<(), TrainError> {
    turnwise_files::sync_folder(folder).map_err(|error| TrainError::io(folder, error))
}

pub(crate) fn create_folders(folder: &Path) -> Result<(), TrainError> {
    turnwise_files::create_folders(folder).map_err(|error| TrainError::io(folder, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::create(folder.path()).unwrap();
        assert!(RunDirectory::open(folder.path()).is_err());
        run.write("config.toml", b"").unwrap();
        assert!(RunDirectory::open(folder.path()).is_ok());
        let error = RunDirectory::create(folder.path()).unwrap_err().to_string();
        assert!(error.contains("--resume"), "{error}");
    }

    #[test]
    fn a_broken_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        fs::write(&path, "\n{\"schema_version\": 1}\n").unwrap();
        let error = read_trajectories(&path).unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("t.jsonl"), "{error}");
    }
}
