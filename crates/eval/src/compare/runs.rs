//! Evaluations, training success and seed of a run, read from its directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;
use turnwise_train::record::directory::{RunStatus, Status};
use turnwise_train::record::metrics::read_metrics;
use turnwise_train::{Phase, Position, RunDirectory, TrainError};

use crate::Evaluation;

/// A file of a run that cannot be read.
#[derive(Debug, Error)]
pub enum RunFileError {
    /// Not a run, or a file of it is broken.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// A file could not be read.
    #[error("{path}: {reason}")]
    File {
        /// Path of the file.
        path: String,
        /// The problem.
        reason: String,
    },
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct RunResults {
    /// The run directory.
    pub path: PathBuf,
    /// Its name.
    pub name: String,
    /// The method that it is a seed of.
    pub method: String,
    /// Seed of its config.
    pub seed: Option<u64>,
    /// True if all its steps are done.
    pub finished: bool,
    /// Evaluations by step of reinforcement learning.
    pub evaluations: BTreeMap<u64, Vec<Evaluation>>,
    /// Success rate of the training rollouts by step.
    pub training: Vec<(u64, f64)>,
}

/// The one setting of a run's config that is looked at here; the rest may be of any version.
#[derive(Deserialize)]
struct Seeded {
    seed: Option<u64>,
}

impl RunResults {
    /// Reads a run directory. The method is the run's name without its seed ([`method_of`]).
    ///
    /// # Errors
    /// Not a run directory, or a file of it that cannot be read.
    pub fn read(root: &Path) -> Result<Self, RunFileError> {
        let directory = RunDirectory::open(root)?;
        let name = root.canonicalize().ok();
        let name = name.as_deref().unwrap_or(root).file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        let config: Seeded = {
            let path = directory.path("config.toml");
            let text = fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))?;
            toml::from_str(&text).map_err(|error| unreadable(&path, &error))?
        };
        let status: Option<Status> = directory.read_json("status.json").ok();
        let finished = status.is_some_and(|status| status.state == RunStatus::Finished);
        let mut evaluations = BTreeMap::new();
        let folder = directory.path("eval");
        let entries = if folder.is_dir() {
            fs::read_dir(&folder).map_err(|error| unreadable(&folder, &error))?.collect()
        } else {
            Vec::new()
        };
        for entry in entries {
            let path = entry.map_err(|error| unreadable(&folder, &error))?.path();
            let label = path.file_stem().and_then(|stem| stem.to_str()?.parse::<Position>().ok());
            let json = path.extension().is_some_and(|extension| extension == "json");
            if let Some(Position { phase: Phase::Rl, step }) = label.filter(|_| json) {
                let text = fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))?;
                let results = serde_json::from_str(&text).map_err(|error| unreadable(&path, &error))?;
                evaluations.insert(step, results);
            }
        }
        let lines = read_metrics(&directory.path("metrics.jsonl"))?;
        let training = lines
            .iter()
            .filter(|line| line.phase == Phase::Rl)
            .filter_map(|line| Some((line.step, line.metrics.get("train/success_rate")?)))
            .collect();
        let method = method_of(&name).to_owned();
        Ok(Self {
            path: root.to_path_buf(),
            name,
            method,
            seed: config.seed,
            finished,
            evaluations,
            training,
        })
    }

    /// The run as messages name it.
    pub(crate) fn shown(&self) -> String {
        self.path.display().to_string()
    }
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> RunFileError {
    RunFileError::File { path: path.display().to_string(), reason: error.to_string() }
}

/// A run's name without what says its seed at the end: `grpo-seed-0`, `grpo-seed0` and `grpo_seed_0` are all `grpo`.
pub fn method_of(name: &str) -> &str {
    let without = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if without.len() == name.len() {
        return name;
    }
    let without = without.strip_suffix(['-', '_']).unwrap_or(without);
    let method = without.strip_suffix("seed").and_then(|left| left.strip_suffix(['-', '_']));
    method.filter(|method| !method.is_empty()).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_no_part_of_a_method() {
        for (name, method) in [
            ("grpo-seed-0", "grpo"),
            ("grpo-seed12", "grpo"),
            ("a_seed_3", "a"),
            ("grpo-2", "grpo-2"),
            ("seed-0", "seed-0"),
            ("-seed-0", "-seed-0"),
            ("linseed0", "linseed0"),
            ("grpo-seed-", "grpo-seed-"),
        ] {
            assert_eq!(method_of(name), method, "{name}");
        }
    }
}
