//! A data set's turns as arrays, and a method's advantages for them.

use std::collections::BTreeMap;

use turnwise_core::{Batch, Group, Turn};
use turnwise_credit::{CreditError, CreditInputs, Embedder, ModelInputs, Pipeline};

use crate::truth::{TruthLine, halves, mean_and_error};

/// One advantage per scored turn, in the order of [`ScoredTurns`].
pub type Advantages = Vec<f64>;

/// A data set in batches, and its turns with a true advantage.
#[derive(Clone, Debug, Default)]
pub struct ScoredTurns {
    /// Batches with their training steps. A batch holds the groups that a method sees together.
    pub batches: Vec<(u64, Batch)>,
    /// Turns with a true advantage, in batch order.
    pub turns: Vec<ScoredTurn>,
    /// Number of distinct tasks.
    pub tasks: usize,
    /// Number of trajectories.
    pub trajectories: usize,
    /// Number of solved trajectories.
    pub solved: usize,
}

/// A turn with its true advantage.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScoredTurn {
    /// Indices: batch, group, trajectory, turn.
    pub place: [usize; 4],
    /// Task index; tasks are numbered by first appearance.
    pub task: usize,
    /// Trajectory index, counted over all batches in batch order.
    pub trajectory: usize,
    /// Trajectory index in the order of the data set's lines.
    pub line: usize,
    /// Whether the task was solved.
    pub success: bool,
    /// `A*`.
    pub truth: f64,
    /// Standard error of `truth`.
    pub error: f64,
    /// `A*` estimated from each half of the continuations.
    pub halves: [f64; 2],
    /// Number of continuations from the state before the turn.
    pub k: usize,
    pub(crate) returns: Vec<f64>,
    pub(crate) reward: f64,
    pub(crate) gamma: f64,
    pub(crate) last: bool,
}

impl ScoredTurns {
    /// Collects a data set's turns in batch order.
    pub fn new(lines: Vec<TruthLine>) -> Self {
        type Members = Vec<(usize, TruthLine)>;
        let mut steps: BTreeMap<u64, Vec<(usize, Members)>> = BTreeMap::new();
        for (index, line) in lines.into_iter().enumerate() {
            let groups = steps.entry(line.trajectory.step).or_default();
            match groups.iter_mut().find(|(group, _)| *group == line.trajectory.group) {
                Some((_, members)) => members.push((index, line)),
                None => groups.push((line.trajectory.group, vec![(index, line)])),
            }
        }
        let mut found = Self::default();
        let mut tasks: BTreeMap<String, usize> = BTreeMap::new();
        for (batch, (step, groups)) in steps.into_iter().enumerate() {
            let mut made = Batch::default();
            for (group, (_, members)) in groups.into_iter().enumerate() {
                let mut trajectories = Vec::with_capacity(members.len());
                for (member, (index, line)) in members.into_iter().enumerate() {
                    let number = tasks.len();
                    let task = *tasks.entry(line.trajectory.task.id.clone()).or_insert(number);
                    found.add((index, &line), [batch, group, member], task);
                    trajectories.push(line.trajectory);
                }
                made.groups.push(Group { trajectories });
            }
            found.batches.push((step, made));
        }
        found.tasks = tasks.len();
        found
    }

    fn add(&mut self, (index, line): (usize, &TruthLine), [batch, group, member]: [usize; 3], task: usize) {
        let count = line.trajectory.turns.len();
        for (turn, truth) in line.truth.iter().enumerate() {
            let Some(truth) = truth else { continue };
            self.turns.push(ScoredTurn {
                place: [batch, group, member, turn],
                task,
                trajectory: self.trajectories,
                line: index,
                success: line.trajectory.success,
                truth: truth.a_star,
                error: truth.a_star_error,
                halves: truth.halves,
                k: truth.k,
                returns: truth.returns.clone(),
                reward: line.trajectory.turns.get(turn).map_or(0.0, Turn::credited_reward),
                gamma: line.benchmark.gamma,
                last: turn + 1 == count,
            });
        }
        self.trajectories += 1;
        self.solved += usize::from(line.trajectory.success);
    }

    /// Selects the advantages of the scored turns, given the advantages of all turns in data set
    /// order; `None` if an advantage is missing.
    pub fn in_order(&self, by_line: &[Vec<f64>]) -> Option<Advantages> {
        self.turns.iter().map(|turn| by_line.get(turn.line)?.get(turn.place[3]).copied()).collect()
    }

    /// Returns `A*` computed from the first `k` continuations of each state's first half, to
    /// compare with `A*` of the second half; `None` if a state has fewer.
    pub fn ladder(&self, k: usize) -> Option<Advantages> {
        let first = |turn: &ScoredTurn| {
            let [mut first, second] = halves(&turn.returns);
            let enough = first.len() >= k && !second.is_empty() && k > 0;
            first.truncate(k);
            enough.then(|| mean_and_error(&first).0)
        };
        let mut found = Vec::with_capacity(self.turns.len());
        for (index, turn) in self.turns.iter().enumerate() {
            let follows =
                |next: &&ScoredTurn| next.trajectory == turn.trajectory && next.place[3] == turn.place[3] + 1;
            let next = self.turns.get(index + 1).filter(follows);
            let after = if turn.last { 0.0 } else { first(next?)? };
            found.push(turn.reward + turn.gamma * after - first(turn)?);
        }
        (!found.is_empty()).then_some(found)
    }
}

/// Returns a method's advantages, computed per batch as in training. `model_inputs` has one entry
/// per batch, or none if the method needs no model.
///
/// # Errors
/// Fails on a missing turn field, NaN or infinity.
pub fn advantages(
    turns: &ScoredTurns,
    pipeline: &Pipeline,
    embedder: &dyn Embedder,
    model_inputs: &[ModelInputs],
    seed: u64,
) -> Result<Advantages, CreditError> {
    let mut tables = Vec::with_capacity(turns.batches.len());
    for (index, (step, batch)) in turns.batches.iter().enumerate() {
        let mut inputs = CreditInputs::new(batch).at(seed, *step).with_embedder(embedder);
        if let Some(model_inputs) = model_inputs.get(index) {
            inputs = inputs.with_model_inputs(model_inputs);
        }
        tables.push(pipeline.report(&inputs, false)?.advantages);
    }
    Ok(turns
        .turns
        .iter()
        .map(|turn| {
            let [batch, group, member, index] = turn.place;
            tables[batch][(group, member, index)]
        })
        .collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use turnwise_core::{Task, Trajectory};
    use turnwise_credit::CreditConfig;
    use turnwise_credit::embedding::HashedNgrams;

    use super::*;
    use crate::truth::{tests::source, truth_of_turns};

    /// Creates a trajectory that is rewarded at its end, with the returns of each state.
    pub(crate) fn line(
        (task, group, sample): (&str, usize, usize),
        reward: f64,
        returns: &[&[f64]],
    ) -> TruthLine {
        let mut rewards = vec![0.0; returns.len()];
        if let Some(last) = rewards.last_mut() {
            *last = reward;
        }
        let turn = |(index, reward): (usize, &f64)| Turn {
            observation: format!("state {index}"),
            action: format!("action {sample}"),
            valid: true,
            reward: *reward,
            ..Turn::default()
        };
        let turns = rewards.iter().enumerate().map(turn).collect();
        let trajectory = Trajectory {
            group,
            sample,
            success: reward > 0.0,
            ..Trajectory::new(Task::new(task, "k", "g"), turns)
        };
        let truth = truth_of_turns(&rewards, returns, 1.0).into_iter().map(Some).collect();
        TruthLine { trajectory, truth, benchmark: source() }
    }

    #[test]
    fn turns_are_those_of_all_batches_in_order() {
        let half: &[f64] = &[0.0, 1.0];
        let mut lines = vec![
            line(("a", 0, 0), 1.0, &[half, half]),
            line(("b", 1, 0), 0.0, &[half]),
            line(("a", 0, 1), 0.0, &[half]),
            line(("a", 2, 0), 0.0, &[half]),
        ];
        lines[3].trajectory.step = 1;
        lines[1].truth[0] = None;
        let turns = ScoredTurns::new(lines);
        assert_eq!((turns.tasks, turns.trajectories, turns.solved), (2, 4, 1));
        let places: Vec<_> = turns.turns.iter().map(|turn| turn.place).collect();
        assert_eq!(places, [[0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0], [1, 0, 0, 0]]);
        assert_eq!(turns.turns.iter().map(|turn| turn.task).collect::<Vec<_>>(), [0, 0, 0, 0]);
        assert_eq!(turns.turns.iter().map(|turn| turn.trajectory).collect::<Vec<_>>(), [0, 0, 1, 3]);
        assert_eq!(turns.turns.iter().map(|turn| turn.line).collect::<Vec<_>>(), [0, 0, 2, 3]);
        let grpo = Pipeline::from_config(&CreditConfig::default()).unwrap();
        let found = advantages(&turns, &grpo, &HashedNgrams::default(), &[], 0).unwrap();
        // Returns 1 and 0 give +-sqrt(1/2); a group of one gives 0.
        assert!((found[0] - 0.5_f64.sqrt()).abs() < 1e-5 && found[0] == found[1], "{found:?}");
        assert_eq!((found[2], found[3]), (-found[0], 0.0));
        let by_line = [vec![1.0, 2.0], vec![3.0], vec![4.0], vec![5.0]];
        assert_eq!(turns.in_order(&by_line), Some(vec![1.0, 2.0, 4.0, 5.0]));
        assert_eq!(turns.in_order(&by_line[..3]), None);
    }

    #[test]
    fn the_ladder_has_draws_of_the_first_half() {
        // Even indices: 1, 0 and 0, 0; odd ones differ.
        let (first, second): (&[f64], &[f64]) = (&[1.0, 9.0, 0.0, 9.0], &[0.0, 7.0, 0.0, 7.0]);
        let turns = ScoredTurns::new(vec![line(("a", 0, 0), 1.0, &[first, second])]);
        assert_eq!(turns.ladder(1).unwrap(), [0.0 - 1.0, 1.0 - 0.0]);
        assert_eq!(turns.ladder(2).unwrap(), [0.0 - 0.5, 1.0]);
        assert_eq!((turns.ladder(3), turns.ladder(0)), (None, None));
        assert_eq!(turns.turns[0].halves, [-0.5, -2.0]);
        let mut lines = vec![line(("a", 0, 0), 1.0, &[first])];
        lines[0].truth[0].as_mut().unwrap().returns.clear();
        assert_eq!(ScoredTurns::new(lines).ladder(1), None);
    }
}
