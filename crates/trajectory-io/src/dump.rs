//! The data structures that every format is parsed into.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;
use turnwise_core::{Batch, Group, PerToken, PerTurn, Table, Trajectory, TurnField, Unit};

use crate::{DumpError, Format};

/// Fields of a turn that dumps may have but [`turnwise_core::Turn`] lacks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnExtras {
    /// True if the dump contains the turn's state.
    pub has_observation: bool,
    /// True if the dump contains the turn's action.
    pub has_action: bool,
    /// True if the dump contains the turn's reward, or a reward for the whole trajectory.
    pub has_reward: bool,
    /// Critic values, one per response token.
    pub values: Option<Vec<f64>>,
    /// Per-turn credit from an external decomposer.
    pub credit: Option<f64>,
}

/// Where a trajectory is located in its file.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// Line number in the file, counted from 1; in a Parquet file, the row.
    pub line: usize,
    /// Name of the group in the file, which may be a string or a number.
    pub group: Value,
    /// True if the task was solved; `None` if the file does not say.
    pub success: Option<bool>,
    /// Additional fields, one entry per turn.
    pub turns: Vec<TurnExtras>,
}

/// The groups in one step of a dump.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DumpBatch {
    /// The training step.
    pub step: u64,
    /// The trajectories.
    pub batch: Batch,
    /// Where each trajectory is located in the file, as `[group][trajectory]`.
    pub origins: Vec<Vec<Origin>>,
}

impl DumpBatch {
    /// Returns the critic values; empty for turns without values.
    pub fn values(&self) -> PerToken<f64> {
        self.map(|origin| {
            origin.turns.iter().flat_map(|turn| turn.values.iter().flatten().copied()).collect()
        })
    }

    /// Returns the credits from an external decomposer; NaN for turns without one.
    pub fn credits(&self) -> PerTurn<f64> {
        self.map(|origin| origin.turns.iter().map(|turn| turn.credit.unwrap_or(f64::NAN)).collect())
    }

    fn map<T, U: Unit>(&self, of: impl Fn(&Origin) -> Vec<T>) -> Table<T, U> {
        self.origins.iter().map(|group| group.iter().map(&of).collect()).collect()
    }
}

/// The contents of a file.
#[derive(Clone, Debug)]
pub struct Dump {
    /// Path of the file.
    pub path: PathBuf,
    /// Format of the file.
    pub format: Format,
    /// Steps in ascending order. Statistics over a batch never mix steps.
    pub batches: Vec<DumpBatch>,
    /// Notes for the user about how the file was read.
    pub notes: Vec<String>,
}

impl Dump {
    /// Checks that every turn has a field that a method needs.
    ///
    /// # Errors
    /// The error names the method, the first line and turn that lack the field, and whether the
    /// format can contain it.
    pub fn require(&self, method: &str, field: TurnField) -> Result<(), DumpError> {
        for step in &self.batches {
            for (group, origins) in step.batch.groups.iter().zip(&step.origins) {
                for (trajectory, origin) in group.trajectories.iter().zip(origins) {
                    for (index, (turn, extras)) in trajectory.turns.iter().zip(&origin.turns).enumerate() {
                        let present = match field {
                            TurnField::Observation => extras.has_observation,
                            TurnField::Action => extras.has_action,
                            TurnField::Entropies => !turn.entropies.is_empty(),
                            TurnField::Progress => turn.progress.is_some(),
                            TurnField::StateValue => turn.state_value.is_some(),
                            TurnField::Values => extras.values.is_some(),
                            TurnField::Credit => extras.credit.is_some(),
                        };
                        if !present {
                            let (key, what) = field.describe();
                            let mut reason =
                                format!("turn {index}: {method} needs `{key}` ({what}), which is missing");
                            if !self.format.has(field) {
                                reason.push_str(&format!("; {} dumps do not have it", self.format.name()));
                            }
                            return Err(DumpError::line(&self.path, origin.line, reason));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks that every trajectory has a reward.
    ///
    /// # Errors
    /// The error names the first line that lacks one.
    pub fn require_rewards(&self) -> Result<(), DumpError> {
        let origins = self.batches.iter().flat_map(|step| step.origins.iter().flatten());
        let missing = |origin: &&Origin| origin.turns.iter().any(|turn| !turn.has_reward);
        let Some(origin) = origins.into_iter().find(missing) else { return Ok(()) };
        let reason = "`reward` is missing; every method needs the outcome: give `reward` a number, or a list with a number \
                      for each assistant message";
        Err(DumpError::line(&self.path, origin.line, reason))
    }
}

pub(crate) struct Record {
    pub(crate) line: usize,
    pub(crate) step: u64,
    /// Identifies the group that a trajectory belongs to.
    pub(crate) key: String,
    pub(crate) group: Value,
    /// [`assemble`] sets the record's group, and its sample index if the file does not contain it.
    pub(crate) trajectory: Trajectory,
    pub(crate) sample: Option<usize>,
    pub(crate) success: Option<bool>,
    pub(crate) turns: Vec<TurnExtras>,
}

/// Groups records by step, then by group, in order of first appearance.
pub(crate) fn assemble(records: Vec<Record>) -> Vec<DumpBatch> {
    let mut batches: BTreeMap<u64, (BTreeMap<String, usize>, DumpBatch)> = BTreeMap::new();
    for record in records {
        let (keys, step) = batches.entry(record.step).or_default();
        step.step = record.step;
        let next = keys.len();
        let group = *keys.entry(record.key).or_insert(next);
        if group == next {
            step.batch.groups.push(Group::default());
            step.origins.push(Vec::new());
        }
        let mut trajectory = record.trajectory;
        trajectory.group = group;
        trajectory.sample = record.sample.unwrap_or(step.origins[group].len());
        step.batch.groups[group].trajectories.push(trajectory);
        let (line, success, turns) = (record.line, record.success, record.turns);
        step.origins[group].push(Origin { line, group: record.group, success, turns });
    }
    batches.into_values().map(|(_, step)| step).collect()
}
