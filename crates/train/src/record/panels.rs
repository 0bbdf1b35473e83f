//! Evaluation tasks, pinned at a run's start.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use turnwise_core::TaskSet;
use turnwise_env::panel::{Choice, Panel, PinnedSplit};

use crate::TrainError;
use crate::config::Config;
use crate::record::directory::RunDirectory;

/// Evaluation panels, and the hash of the training split's tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Panels {
    /// Hash of all training tasks ([`Panel::hash`]).
    pub train_hash: String,
    /// Number of training tasks.
    pub train_tasks: usize,
    /// Panels by split.
    pub evaluation: BTreeMap<String, Panel>,
}

/// Pins the panels of a config.
///
/// # Errors
/// Fails on a missing or unreadable split, duplicate task ids, too few tasks for `eval.tasks`, or a
/// task shared with training.
pub fn pin(config: &Config, set: &dyn TaskSet) -> Result<Panels, TrainError> {
    let train = PinnedSplit::pin(set, &config.env.split)?;
    let mut evaluation = BTreeMap::new();
    for split in &config.eval.splits {
        let panel = pin_first(set, split, config.eval.tasks)?;
        train.check_disjoint(&panel)?;
        evaluation.insert(split.clone(), panel);
    }
    Ok(Panels { train_hash: train.hash().to_owned(), train_tasks: train.len(), evaluation })
}

/// Pins the first `count` tasks of a split in content-hash order; 0: all.
///
/// # Errors
/// Fails like [`pin`].
pub fn pin_first(set: &dyn TaskSet, split: &str, count: usize) -> Result<Panel, TrainError> {
    Ok(Panel::pin(set, split, Choice { count: (count > 0).then_some(count), ..Choice::default() })?)
}

/// Returns the pinned panel of a split, if any, verified against the current tasks.
///
/// # Errors
/// Fails if a task is missing or has changed.
pub fn pinned(run: &RunDirectory, split: &str, set: &dyn TaskSet) -> Result<Option<Panel>, TrainError> {
    let mut panels: Panels = run.read_json("panel.json")?;
    let Some(panel) = panels.evaluation.remove(split) else { return Ok(None) };
    verify_panel(run, &panel, set)?;
    Ok(Some(panel))
}

fn verify_panel(run: &RunDirectory, panel: &Panel, set: &dyn TaskSet) -> Result<(), TrainError> {
    panel.verify(set).map_err(|error| TrainError::file(&run.path("panel.json"), error.to_string()))
}

/// Checks that the tasks have not changed since the run's start.
///
/// # Errors
/// Returns the first task that is missing or has changed.
pub fn verify(run: &RunDirectory, config: &Config, set: &dyn TaskSet) -> Result<(), TrainError> {
    let panels: Panels = run.read_json("panel.json")?;
    for panel in panels.evaluation.values() {
        verify_panel(run, panel, set)?;
    }
    if pin(config, set)? == panels {
        return Ok(());
    }
    Err(TrainError::file(
        &run.path("panel.json"),
        "the tasks are not the ones this run began with (their hashes differ); give it the data it had, or start a new run",
    ))
}
