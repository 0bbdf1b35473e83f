//! The explanation of every number: what each stage of the pipeline did to a turn's advantage, and why.

use std::borrow::Cow;
use std::collections::BTreeMap;

use turnwise_core::{Batch, Facts, StageRecord};

use crate::TurnAdvantages;

/// The explanations of a batch, `[group][trajectory][turn][stage]`.
pub type Explanations = Vec<Vec<Vec<Vec<StageRecord>>>>;

/// Gives every trajectory of the batch its part of the explanations. Explanations that nobody asked for are
/// empty, and the batch then stays as it is.
pub fn attach_explanations(batch: &mut Batch, explanations: Explanations) {
    for (group, explanations) in batch.groups.iter_mut().zip(explanations) {
        for (trajectory, explanation) in group.trajectories.iter_mut().zip(explanations) {
            trajectory.explanation = Some(explanation);
        }
    }
}

/// Collects explanations while a pipeline runs. Switched off it records nothing and costs nothing;
/// diagnostics of the batch are collected either way.
#[derive(Clone, Debug, Default)]
pub struct Explanation {
    on: bool,
    /// Facts of the running stage, `[group][trajectory][turn]`.
    pending: Vec<Vec<Vec<Facts>>>,
    finished: Explanations,
    diagnostics: BTreeMap<String, f64>,
}

impl Explanation {
    /// A explanation that records (`on`) or does not.
    pub fn new(on: bool) -> Self {
        Self { on, ..Self::default() }
    }

    /// Whether facts are recorded.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Records the facts of every turn of one group. `items` is `[trajectory][turn]`; `facts` gets
    /// trajectory, turn and item and is called only when the explanation is on.
    pub fn facts<T, N: Into<Cow<'static, str>>>(
        &mut self,
        group: usize,
        items: &[Vec<T>],
        mut facts: impl FnMut(usize, usize, &T) -> Vec<(N, f64)>,
    ) {
        if !self.on {
            return;
        }
        for (trajectory, turns) in items.iter().enumerate() {
            for (turn, item) in turns.iter().enumerate() {
                let new = facts(trajectory, turn, item).into_iter().map(|(name, value)| (name.into(), value));
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
        if self.finished.is_empty() {
            // A trajectory without turns keeps its place.
            self.finished = advantages.0.iter().map(|rows| vec![Vec::new(); rows.len()]).collect();
        }
        for (group, trajectories) in advantages.0.iter().enumerate() {
            for (trajectory, turns) in trajectories.iter().enumerate() {
                for (turn, &advantage) in turns.iter().enumerate() {
                    let facts = std::mem::take(slot(&mut pending, group, trajectory, turn));
                    slot(&mut self.finished, group, trajectory, turn).push(StageRecord {
                        stage: stage.into(),
                        advantage,
                        facts,
                    });
                }
            }
        }
    }

    /// The explanations, `[group][trajectory][turn][stage]`, and the diagnostics.
    pub(crate) fn finish(self) -> (Explanations, BTreeMap<String, f64>) {
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
