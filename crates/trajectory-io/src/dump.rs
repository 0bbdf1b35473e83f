//! Data structures for dumps in any format.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;
use turnwise_core::{Batch, Group, PerToken, PerTurn, Table, Trajectory, TurnField, Unit};

use crate::{DumpError, Format};

/// Fields of a dump that [`turnwise_core::Turn`] lacks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnExtras {
    /// Whether the dump has the turn's state.
    pub has_observation: bool,
    /// Whether the dump has the turn's action.
    pub has_action: bool,
    /// Whether the dump has a reward for the turn or the trajectory.
    pub has_reward: bool,
    /// Critic values per response token.
    pub values: Option<Vec<f64>>,
    /// Credit from an external decomposer.
    pub credit: Option<f64>,
}

/// A trajectory's location in its file.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// Line or Parquet row, from 1.
    pub line: usize,
    /// Group name, a string or number.
    pub group: Value,
    /// Whether the task was solved, if known.
    pub success: Option<bool>,
    /// Additional fields per turn.
    pub turns: Vec<TurnExtras>,
}

/// One step of a dump.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DumpBatch {
    /// Training step.
    pub step: u64,
    /// Trajectories by group.
    pub batch: Batch,
    /// Locations as `[group][trajectory]`.
    pub origins: Vec<Vec<Origin>>,
}

impl DumpBatch {
    /// Returns the critic values per token; turns without critic values add nothing.
    pub fn values(&self) -> PerToken<f64> {
        self.map(|origin| {
            origin.turns.iter().flat_map(|turn| turn.values.iter().flatten().copied()).collect()
        })
    }

    /// Returns the turns' credits; NaN for turns without credit.
    pub fn credits(&self) -> PerTurn<f64> {
        self.map(|origin| origin.turns.iter().map(|turn| turn.credit.unwrap_or(f64::NAN)).collect())
    }

    fn map<T, U: Unit>(&self, of: impl Fn(&Origin) -> Vec<T>) -> Table<T, U> {
        self.origins.iter().map(|group| group.iter().map(&of).collect()).collect()
    }
}

/// A file's contents.
#[derive(Clone, Debug)]
pub struct Dump {
    /// File path.
    pub path: PathBuf,
    /// File format.
    pub format: Format,
    /// Steps in ascending order; batch statistics never mix steps.
    pub batches: Vec<DumpBatch>,
    /// Notes for the user about reading the file.
    pub notes: Vec<String>,
}

impl Dump {
    /// Checks that every turn has a field.
    ///
    /// # Errors
    /// The error names the method, the first line and turn without the field, and whether the
    /// format can contain the field.
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
    /// The error names the first line without a reward.
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
    pub(crate) key: String,
    pub(crate) group: Value,
    /// The trajectory. [`assemble`] sets the trajectory's group index, and its sample index if
    /// `sample` is missing.
    pub(crate) trajectory: Trajectory,
    pub(crate) sample: Option<usize>,
    pub(crate) success: Option<bool>,
    pub(crate) turns: Vec<TurnExtras>,
}

/// Sorts records by step and, within a step, collects them into groups in order of first
/// appearance.
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
