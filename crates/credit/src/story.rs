//! The story of every number: what each stage of the pipeline did to a turn's advantage, and why.

use std::collections::BTreeMap;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use crate::TurnAdvantages;

/// Named numbers that say why an advantage is what it is, in the order a reader wants them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts(pub Vec<(&'static str, f64)>);

impl Serialize for Facts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// What one stage did to one turn.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageStory {
    /// The stage's config name.
    pub stage: &'static str,
    /// The advantage after it.
    pub advantage: f64,
    /// Why.
    pub facts: Facts,
}

/// The stories of a batch, `[group][trajectory][turn][stage]`.
pub type Stories = Vec<Vec<Vec<Vec<StageStory>>>>;

/// Collects stories while a pipeline runs. Switched off it records nothing and costs nothing;
/// diagnostics of the batch are collected either way.
#[derive(Clone, Debug, Default)]
pub struct Story {
    on: bool,
    /// Facts of the running stage, `[group][trajectory][turn]`.
    pending: Vec<Vec<Vec<Facts>>>,
    finished: Stories,
    diagnostics: BTreeMap<String, f64>,
}

impl Story {
    /// A story that records (`on`) or does not.
    pub fn new(on: bool) -> Self {
        Self { on, ..Self::default() }
    }

    /// Whether facts are recorded.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Records the facts of every turn of one group. `items` is `[trajectory][turn]`; `facts` gets
    /// trajectory, turn and item and is called only when the story is on.
    pub fn facts<T>(
        &mut self,
        group: usize,
        items: &[Vec<T>],
        mut facts: impl FnMut(usize, usize, &T) -> Vec<(&'static str, f64)>,
    ) {
        if !self.on {
            return;
        }
        for (trajectory, turns) in items.iter().enumerate() {
            for (turn, item) in turns.iter().enumerate() {
                let new = facts(trajectory, turn, item);
                slot(&mut self.pending, group, trajectory, turn).0.extend(new);
            }
        }
    }

    /// Records a number about the whole batch, such as a merge rate.
    pub fn diagnostic(&mut self, name: impl Into<String>, value: f64) {
        self.diagnostics.insert(name.into(), value);
    }

    /// Closes a stage: what it recorded belongs to these advantages.
    pub(crate) fn close(&mut self, stage: &'static str, advantages: &TurnAdvantages) {
        if !self.on {
            return;
        }
        let mut pending = std::mem::take(&mut self.pending);
        for (group, trajectories) in advantages.0.iter().enumerate() {
            for (trajectory, turns) in trajectories.iter().enumerate() {
                for (turn, &advantage) in turns.iter().enumerate() {
                    let facts = std::mem::take(slot(&mut pending, group, trajectory, turn));
                    slot(&mut self.finished, group, trajectory, turn).push(StageStory {
                        stage,
                        advantage,
                        facts,
                    });
                }
            }
        }
    }

    /// The stories, `[group][trajectory][turn][stage]`, and the diagnostics.
    pub(crate) fn finish(self) -> (Stories, BTreeMap<String, f64>) {
        (self.finished, self.diagnostics)
    }
}

/// The entry of a turn, made where it does not exist yet.
fn slot<T: Clone + Default>(
    table: &mut Vec<Vec<Vec<T>>>,
    group: usize,
    trajectory: usize,
    turn: usize,
) -> &mut T {
    if table.len() <= group {
        table.resize(group + 1, Vec::new());
    }
    let trajectories = &mut table[group];
    if trajectories.len() <= trajectory {
        trajectories.resize(trajectory + 1, Vec::new());
    }
    let turns = &mut trajectories[trajectory];
    if turns.len() <= turn {
        turns.resize(turn + 1, T::default());
    }
    &mut turns[turn]
}
