//! Reads a run's evaluations, training success and seed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;
use turnwise_train::record::directory::{RunStatus, Status};
use turnwise_train::record::metrics::read_metrics;
use turnwise_train::{Phase, Position, RunDirectory, TrainError};

use super::draws::averaged;
use crate::Evaluation;

/// Why a run cannot be read.
#[derive(Debug, Error)]
pub enum RunFileError {
    /// Not a run directory, or an invalid file in it.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// An unreadable file.
    #[error("{path}: {reason}")]
    File {
        /// The file.
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
    /// Run name.
    pub name: String,
    /// Run name without the seed.
    pub method: String,
    /// Seed in the config.
    pub seed: Option<u64>,
    /// Whether the run has finished all its steps.
    pub finished: bool,
    /// Evaluation folders; the evaluations of several folders are averaged as draws.
    pub folders: Vec<String>,
    /// Evaluations by RL step.
    pub evaluations: BTreeMap<u64, Vec<Evaluation>>,
    /// Training success rate by step.
    pub training: Vec<(u64, f64)>,
}

/// The only setting that is read from the config, so that configs of older versions work too.
#[derive(Deserialize)]
struct Seeded {
    seed: Option<u64>,
}

impl RunResults {
    /// Reads a run with the evaluations made during its training.
    ///
    /// # Errors
    /// Fails if `root` is not a run directory, or on an unreadable file.
    pub fn read(root: &Path) -> Result<Self, RunFileError> {
        Self::read_with(root, &["eval".to_owned()])
    }

    /// Reads a run with the evaluations in `folders` (`step-NNNNNN.json`, written by
    /// `turnwise eval --output`), averaged over the folders.
    ///
    /// # Errors
    /// Fails like [`RunResults::read`], or if draws of one step were evaluated differently.
    pub fn read_with(root: &Path, folders: &[String]) -> Result<Self, RunFileError> {
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
        let mut draws: BTreeMap<u64, Vec<Vec<Evaluation>>> = BTreeMap::new();
        for folder in folders {
            for (step, results) in evaluations_in(&directory.path(folder))? {
                draws.entry(step).or_default().push(results);
            }
        }
        let mut evaluations = BTreeMap::new();
        for (step, draws) in draws {
            // A step missing from some folders would have fewer draws.
            if draws.len() == folders.len() {
                let results = averaged_by_split(draws).map_err(|reason| RunFileError::File {
                    path: format!("{}: step {step} of {}", root.display(), folders.join(", ")),
                    reason,
                })?;
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
            folders: folders.to_vec(),
            evaluations,
            training,
        })
    }

    pub(crate) fn shown(&self) -> String {
        self.path.display().to_string()
    }
}

fn evaluations_in(folder: &Path) -> Result<BTreeMap<u64, Vec<Evaluation>>, RunFileError> {
    let mut evaluations = BTreeMap::new();
    if !folder.is_dir() {
        return Ok(evaluations);
    }
    for entry in fs::read_dir(folder).map_err(|error| unreadable(folder, &error))? {
        let path = entry.map_err(|error| unreadable(folder, &error))?.path();
        let label = path.file_stem().and_then(|stem| stem.to_str()?.parse::<Position>().ok());
        let json = path.extension().is_some_and(|extension| extension == "json");
        if let Some(Position { phase: Phase::Rl, step }) = label.filter(|_| json) {
            let text = fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))?;
            let results = serde_json::from_str(&text).map_err(|error| unreadable(&path, &error))?;
            evaluations.insert(step, results);
        }
    }
    Ok(evaluations)
}

fn averaged_by_split(mut draws: Vec<Vec<Evaluation>>) -> Result<Vec<Evaluation>, String> {
    if draws.len() == 1 {
        return Ok(draws.remove(0));
    }
    let mut by_split: BTreeMap<String, Vec<Evaluation>> = BTreeMap::new();
    let count = draws.len();
    for result in draws.into_iter().flatten() {
        by_split.entry(result.split.clone()).or_default().push(result);
    }
    by_split.into_values().filter(|draws| draws.len() == count).map(averaged).collect()
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> RunFileError {
    RunFileError::File { path: path.display().to_string(), reason: error.to_string() }
}

/// Returns a run's name without the seed: `grpo` for `grpo-seed-0`, `grpo-seed0` or `grpo_seed_0`.
pub(crate) fn method_of(name: &str) -> &str {
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
