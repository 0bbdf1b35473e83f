//! Anchor states: states that occur in several turns of one task's trajectories, so these turns can
//! be compared (GiGPO, section 4.2; STAPO, section 3.1). Each turn is in exactly one anchor group,
//! which holds all turns of the same state; history summaries ([`TurnKind::Compaction`]) never
//! share a group with actions.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};
use turnwise_core::{Batch, Group, Turn, TurnKind};

use crate::hashing::FastMap;
use crate::similarity::{Similarity, TextId};

/// When two observations are the same state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Matching {
    /// Equal texts.
    #[default]
    Exact,
    /// Texts whose difflib similarity to the first member of the anchor group reaches the
    /// threshold.
    Similarity,
}

/// Which of several similar anchor groups a turn joins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Assignment {
    /// The most similar group, or the first of several that tie (STAPO).
    #[default]
    GreedyMax,
    /// The first group that is similar enough (verl-agent).
    FirstMatch,
}

/// How anchor states are matched. Threshold, assignment and autojunk apply only with
/// `matching = "similarity"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AnchorConfig {
    /// When two observations are the same state.
    pub matching: Matching,
    /// Minimum similarity, in [0, 1].
    #[schemars(range(min = 0.0, max = 1.0))]
    pub threshold: f64,
    /// Which of several similar anchor groups a turn joins.
    pub assignment: Assignment,
    /// difflib's autojunk heuristic, as in verl-agent.
    pub autojunk: bool,
}

impl Default for AnchorConfig {
    fn default() -> Self {
        Self { matching: Matching::Exact, threshold: 0.9, assignment: Assignment::GreedyMax, autojunk: false }
    }
}

/// Anchor groups of one group of trajectories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Anchors {
    /// Anchor group of each turn, `[trajectory][turn]`, numbered in order of first appearance.
    pub of: Vec<Vec<usize>>,
    /// Number of anchor groups.
    pub count: usize,
}

impl Anchors {
    /// Finds the anchor groups of one group; exact matching takes linear time.
    pub fn find(group: &Group, config: &AnchorConfig) -> Self {
        match config.matching {
            Matching::Exact => {
                let mut ids: FastMap<(TurnKind, &str), usize> = FastMap::default();
                Self::assign(group, |turn| {
                    let next = ids.len();
                    *ids.entry((turn.kind, turn.state_key())).or_insert(next)
                })
            }
            Matching::Similarity => {
                let mut groupers = [Grouper::new(config), Grouper::new(config)];
                let mut ids: FastMap<(TurnKind, usize), usize> = FastMap::default();
                Self::assign(group, |turn| {
                    let own = groupers[usize::from(turn.is_compaction())].assign(turn.state_key());
                    let next = ids.len();
                    *ids.entry((turn.kind, own)).or_insert(next)
                })
            }
        }
    }

    /// Finds the anchor groups of each group. Matching by similarity uses all CPU threads.
    pub fn find_all(batch: &Batch, config: &AnchorConfig) -> Vec<Self> {
        let threads = match config.matching {
            Matching::Exact => 1,
            Matching::Similarity => std::thread::available_parallelism().map_or(1, usize::from),
        };
        Self::find_all_on(batch, config, threads)
    }

    /// Like [`Anchors::find_all`], on `threads` threads; their number does not affect the result.
    pub fn find_all_on(batch: &Batch, config: &AnchorConfig, threads: usize) -> Vec<Self> {
        let groups = &batch.groups;
        let threads = threads.min(groups.len());
        if threads < 2 {
            return groups.iter().map(|group| Self::find(group, config)).collect();
        }
        let next = AtomicUsize::new(0);
        let work = || {
            let mut found = Vec::new();
            while let Some(index) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&at| at < groups.len())
            {
                found.push((index, Self::find(&groups[index], config)));
            }
            found
        };
        let mut all: Vec<Option<Self>> = vec![None; groups.len()];
        std::thread::scope(|scope| {
            let workers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut found = work();
            // A panicked worker's groups are computed again below, so the panic propagates.
            found.extend(workers.into_iter().flat_map(|worker| worker.join().unwrap_or_default()));
            for (index, anchors) in found {
                all[index] = Some(anchors);
            }
        });
        let all = all.into_iter().zip(groups);
        all.map(|(anchors, group)| anchors.unwrap_or_else(|| Self::find(group, config))).collect()
    }

    fn assign<'a>(group: &'a Group, mut group_of: impl FnMut(&'a Turn) -> usize) -> Self {
        let mut anchors = Self::default();
        for trajectory in &group.trajectories {
            let of: Vec<usize> = trajectory.turns.iter().map(&mut group_of).collect();
            anchors.count = of.iter().fold(anchors.count, |count, &id| count.max(id + 1));
            anchors.of.push(of);
        }
        anchors
    }

    /// Returns each anchor group's number of turns.
    pub fn sizes(&self) -> Vec<usize> {
        let mut sizes = vec![0; self.count];
        self.of.iter().flatten().for_each(|&id| sizes[id] += 1);
        sizes
    }

    /// Returns the values `[trajectory][turn]` as one list per anchor group.
    pub fn gather(&self, values: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let mut gathered = vec![Vec::new(); self.count];
        for (of, values) in self.of.iter().zip(values) {
            for (&id, &value) in of.iter().zip(values) {
                gathered[id].push(value);
            }
        }
        gathered
    }
}

struct Grouper {
    similarity: Similarity,
    threshold: f64,
    assignment: Assignment,
    representatives: Vec<TextId>,
    /// For each text, its best match and the number of anchor groups that it was compared with, so
    /// that a repeated text is compared only with groups added since.
    seen: Vec<(usize, Option<(usize, f64)>)>,
}

impl Grouper {
    fn new(config: &AnchorConfig) -> Self {
        Self {
            similarity: Similarity::new(config.autojunk),
            threshold: config.threshold,
            assignment: config.assignment,
            representatives: Vec::new(),
            seen: Vec::new(),
        }
    }

    fn assign(&mut self, text: &str) -> usize {
        let id = self.similarity.intern(text);
        if self.seen.len() <= id.index() {
            self.seen.resize(id.index() + 1, (0, None));
        }
        let (compared, mut best) = self.seen[id.index()];
        for group in compared..self.representatives.len() {
            if best.is_some_and(|(_, ratio)| self.assignment == Assignment::FirstMatch || ratio >= 1.0) {
                break;
            }
            let representative = self.representatives[group];
            let ratio = match best {
                None => self.similarity.ratio_at_least(id, representative, self.threshold),
                Some((_, ratio)) => self.similarity.ratio_above(id, representative, ratio),
            };
            best = ratio.map(|ratio| (group, ratio)).or(best);
        }
        let (group, ratio) = best.unwrap_or_else(|| {
            self.representatives.push(id);
            (self.representatives.len() - 1, 1.0)
        });
        self.seen[id.index()] = (self.representatives.len(), Some((group, ratio)));
        group
    }
}

#[cfg(test)]
mod tests {
    use turnwise_core::{Task, Trajectory};

    use super::*;

    #[test]
    fn summaries_are_compared_with_summaries_of_their_state() {
        let turn = |kind, state: &str| Turn { kind, state_key: Some(state.into()), ..Turn::default() };
        let turns = [
            turn(TurnKind::Action, "a"),
            turn(TurnKind::Compaction, "b"),
            turn(TurnKind::Action, "b"),
            turn(TurnKind::Compaction, "b"),
        ];
        let group = Group { trajectories: vec![Trajectory::new(Task::default(), turns.to_vec())] };
        for matching in [Matching::Exact, Matching::Similarity] {
            let anchors = Anchors::find(&group, &AnchorConfig { matching, ..AnchorConfig::default() });
            assert_eq!((anchors.of[0].as_slice(), anchors.count), ([0, 1, 2, 1].as_slice(), 3));
        }
    }
}
