//! How each stage of the pipeline changed a turn's advantage.

use std::borrow::Cow;
use std::collections::BTreeMap;

use turnwise_core::{Batch, Facts, PerTurn, StageRecord};

/// Records of all stages, per turn.
pub type Explanations = PerTurn<Vec<StageRecord>>;

/// Stores the explanations, if any, in the batch's trajectories.
pub fn attach_explanations(batch: &mut Batch, explanations: Explanations) {
    for (group, explanations) in batch.groups.iter_mut().zip(Vec::from(explanations)) {
        for (trajectory, explanation) in group.trajectories.iter_mut().zip(explanations) {
            trajectory.explanation = Some(explanation);
        }
    }
}

/// Collects diagnostics and, if enabled, explanations.
#[derive(Clone, Debug, Default)]
pub struct Explanation {
    on: bool,
    pending: PerTurn<Facts>,
    finished: Explanations,
    diagnostics: BTreeMap<String, f64>,
}

impl Explanation {
    /// Creates a collector. If `on` is false, the collector records diagnostics but no
    /// explanations.
    pub fn new(on: bool) -> Self {
        Self { on, ..Self::default() }
    }

    /// Returns true if explanations are recorded.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Records facts about each turn of one group; `items` is `[trajectory][turn]`. `facts`
    /// receives the trajectory index, the turn index and the item, and is called only if
    /// explanations are on.
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
                self.pending.entry(group, trajectory, turn).0.extend(new);
            }
        }
    }

    /// Records a diagnostic of the whole batch.
    pub fn diagnostic(&mut self, name: impl Into<String>, value: f64) {
        self.diagnostics.insert(name.into(), value);
    }

    pub(crate) fn close(&mut self, stage: &'static str, advantages: &PerTurn<f64>) {
        if !self.on {
            return;
        }
        let mut pending = std::mem::take(&mut self.pending);
        if self.finished.is_empty() {
            self.finished = advantages.map(|_| Vec::new());
        }
        for (index, &advantage) in advantages.iter() {
            let (group, trajectory, turn) = index;
            let facts = std::mem::take(pending.entry(group, trajectory, turn));
            self.finished[index].push(StageRecord { stage: stage.into(), advantage, facts });
        }
    }

    pub(crate) fn finish(self) -> (Explanations, BTreeMap<String, f64>) {
        (self.finished, self.diagnostics)
    }
}
