//! The data that every format is read into.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;
use turnwise_core::{Batch, Group, PerToken, PerTurn, Table, Trajectory, TurnField, Unit};

use crate::{DumpError, Format};

/// Fields of a turn that a dump may have and [`turnwise_core::Turn`] has not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnExtras {
    /// True if the dump has the turn's state.
    pub has_observation: bool,
    /// True if the dump has the turn's action.
    pub has_action: bool,
    /// True if the dump has the turn's reward, or one of the whole trajectory.
    pub has_reward: bool,
    /// The critic's values, one for each of the turn's response ids.
    pub values: Option<Vec<f64>>,
    /// The credit of an outside decomposer.
    pub credit: Option<f64>,
}

/// Origin of a trajectory.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// The line of the file, from 1; in a Parquet file the row.
    pub line: usize,
    /// The group as the file names it, a string or a number.
    pub group: Value,
    /// True if the task was solved; absent if the file does not say.
    pub success: Option<bool>,
    /// Further fields of the turns, one entry a turn.
    pub turns: Vec<TurnExtras>,
}

/// The groups of one step of a dump.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DumpBatch {
    /// The training step.
    pub step: u64,
    /// The trajectories.
    pub batch: Batch,
    /// Origins of the trajectories, `[group][trajectory]`.
    pub origins: Vec<Vec<Origin>>,
}

impl DumpBatch {
    /// Returns the critic's values; a turn that has none adds nothing.
    pub fn values(&self) -> PerToken<f64> {
        self.map(|origin| {
            origin.turns.iter().flat_map(|turn| turn.values.iter().flatten().copied()).collect()
        })
    }

    /// Returns the credits of an outside decomposer; NaN if there is none.
    pub fn credits(&self) -> PerTurn<f64> {
        self.map(|origin| origin.turns.iter().map(|turn| turn.credit.unwrap_or(f64::NAN)).collect())
    }

    fn map<T, U: Unit>(&self, of: impl Fn(&Origin) -> Vec<T>) -> Table<T, U> {
        self.origins.iter().map(|group| group.iter().map(&of).collect()).collect()
    }
}

/// A file, read.
#[derive(Clone, Debug)]
pub struct Dump {
    /// The file.
    pub path: PathBuf,
    /// Format that it was read as.
    pub format: Format,
    /// Its steps in order; statistics over a whole batch never cross them.
    pub batches: Vec<DumpBatch>,
    /// Notes on how the file was read, for people.
    pub notes: Vec<String>,
}

impl Dump {
    /// Checks that every turn has a field that a method needs.
    ///
    /// # Errors
    /// Names the method, the first line and turn without it, and whether the format ever has it.
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
    /// Names the first line without one.
    pub fn require_rewards(&self) -> Result<(), DumpError> {
        let origins = self.batches.iter().flat_map(|step| step.origins.iter().flatten());
        let missing = |origin: &&Origin| origin.turns.iter().any(|turn| !turn.has_reward);
        let Some(origin) = origins.into_iter().find(missing) else { return Ok(()) };
        let reason = "`reward` is missing; every method needs the outcome: give `reward` a number, or a list with a number \
                      for each assistant message";
        Err(DumpError::line(&self.path, origin.line, reason))
    }
}

/// One trajectory as a format's reader found it.
pub(crate) struct Record {
    pub(crate) line: usize,
    pub(crate) step: u64,
    /// Key that trajectories of its group share.
    pub(crate) key: String,
    /// The group as the file names it.
    pub(crate) group: Value,
    /// Its group and sample are set by [`assemble`] where the file does not say the sample.
    pub(crate) trajectory: Trajectory,
    pub(crate) sample: Option<usize>,
    pub(crate) success: Option<bool>,
    pub(crate) turns: Vec<TurnExtras>,
}

/// Records by step, and by group in order of first appearance.
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
