//! The data set of the benchmark: played trajectories as a run writes them, each with the truth of its turns.
//!
//! A line is a trajectory in the project's own form ([`Trajectory`]) with two keys more, so that whatever reads trajectories reads
//! these too: `truth`, one entry a turn, and `benchmark`, what was measured.

use serde::{Deserialize, Serialize};
use turnwise_core::Trajectory;

/// The true advantage of a turn, estimated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnTruth {
    /// `V(s_t)`: mean return of continuations from the state before the turn.
    pub v: f64,
    /// Standard error of `v`.
    pub v_error: f64,
    /// `Q(s_t, a_t)`: the turn's reward, and the discounted mean return from the state after it.
    pub q: f64,
    /// Standard error of `q`.
    pub q_error: f64,
    /// `A* = Q - V`.
    pub a_star: f64,
    /// Standard error of `a_star`.
    pub a_star_error: f64,
    /// Continuations from the state before the turn.
    pub k: usize,
    /// `A*` from one half of the continuations of both states, and from the other half.
    pub halves: [f64; 2],
    /// Returns of the continuations from the state before the turn, in the order of their draws; those at odd places make the second
    /// half. Empty in files that do not store them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub returns: Vec<f64>,
}

/// What was measured, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TruthSource {
    /// `branching` or `tree`.
    pub method: String,
    /// The policy: its run and checkpoint, or the name of its folder.
    pub policy: String,
    /// SHA-256 of the config, every default included, without its seed.
    pub config: String,
    /// The split of the tasks.
    pub split: String,
    /// Discount of the return.
    pub gamma: f64,
    /// Continuations from each state, or samples of each task.
    pub continuations: usize,
    /// Continuations of all tasks together, at most; those above the fixed number go to states of great error. 0: no more.
    #[serde(default)]
    pub budget: usize,
    /// Trajectories of each task that are scored.
    pub samples: usize,
    /// Tasks.
    pub tasks: usize,
    /// Seed of all draws.
    pub seed: u64,
}

/// A trajectory with the truth of its turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TruthLine {
    /// The trajectory.
    #[serde(flatten)]
    pub trajectory: Trajectory,
    /// One entry a turn; none where the method has no truth.
    pub truth: Vec<Option<TurnTruth>>,
    /// What was measured.
    pub benchmark: TruthSource,
}

impl TruthLine {
    /// Checks that there is one entry of `truth` a turn.
    ///
    /// # Errors
    /// Returns both numbers, for a message that names the line.
    pub fn check(&self) -> Result<(), String> {
        let (turns, truth) = (self.trajectory.turns.len(), self.truth.len());
        if turns == truth { Ok(()) } else { Err(format!("{turns} turns have {truth} entries of `truth`")) }
    }
}

/// Returns the mean of independent values and its standard error. The error of fewer than two is 0.
pub fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    if values.is_empty() {
        return (0.0, 0.0);
    }
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let error = if values.len() < 2 { 0.0 } else { (squares / (n - 1.0) / n).sqrt() };
    (mean, error)
}

/// Returns the values at even places, and those at odd places.
pub fn halves(values: &[f64]) -> [Vec<f64>; 2] {
    [0, 1].map(|first| values.iter().skip(first).step_by(2).copied().collect())
}

/// The truth of every turn of a trajectory from the returns of continuations: `returns[t]` has those from the state before turn `t`,
/// `rewards[t]` is the reward of the turn. The state after the last turn has no return.
pub fn truth_of_turns(rewards: &[f64], returns: &[&[f64]], gamma: f64) -> Vec<TurnTruth> {
    let of_half = |values: &[f64], half: usize| mean_and_error(&halves(values)[half]).0;
    (0..rewards.len())
        .map(|turn| {
            let (now, next) = (returns[turn], returns.get(turn + 1).copied());
            let (v, v_error) = mean_and_error(now);
            let (after, after_error) = next.map_or((0.0, 0.0), mean_and_error);
            let (q, q_error) = (rewards[turn] + gamma * after, gamma * after_error);
            let halves = [0, 1].map(|half| {
                rewards[turn] + gamma * next.map_or(0.0, |next| of_half(next, half)) - of_half(now, half)
            });
            TurnTruth {
                v,
                v_error,
                q,
                q_error,
                a_star: q - v,
                a_star_error: v_error.hypot(q_error),
                k: now.len(),
                halves,
                returns: now.to_vec(),
            }
        })
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn source() -> TruthSource {
        TruthSource {
            method: "branching".into(),
            policy: "run".into(),
            config: "tiny".into(),
            split: "train".into(),
            gamma: 1.0,
            continuations: 4,
            budget: 0,
            samples: 2,
            tasks: 1,
            seed: 0,
        }
    }

    #[test]
    fn q_of_a_turn_is_its_reward_and_v_of_the_next() {
        // Two turns with the rewards 0.5 and 1: from the start 1 or 0, after the first turn 1 in three of four.
        let first = [1.0, 0.0, 1.0, 0.0];
        let second = [1.0, 1.0, 1.0, 0.0];
        let found = truth_of_turns(&[0.5, 1.0], &[&first, &second], 0.9);
        let close =
            |found: f64, expected: f64| assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        close(found[0].v, 0.5);
        close(found[0].q, 0.5 + 0.9 * 0.75);
        close(found[0].a_star, 0.5 + 0.9 * 0.75 - 0.5);
        // sqrt(4/3 * 0.25 / 4): the sample's variance over four draws.
        close(found[0].v_error, (1.0_f64 / 3.0 / 4.0).sqrt());
        close(found[0].q_error, 0.9 * (0.25_f64 / 4.0).sqrt());
        close(found[0].a_star_error, (1.0 / 12.0 + 0.81 * 0.0625_f64).sqrt());
        // Even places: 1, 1 and 1, 1. Odd places: 0, 0 and 1, 0.
        close(found[0].halves[0], 0.5 + 0.9 - 1.0);
        close(found[0].halves[1], 0.5 + 0.45);
        // Nothing comes after the last turn: what it gave is known.
        assert_eq!((found[1].q, found[1].q_error, found[1].a_star), (1.0, 0.0, 0.25));
        assert_eq!((found[1].k, found[1].returns.as_slice()), (4, second.as_slice()));
        // The halves' mean is the whole where both have as many.
        close(f64::midpoint(found[0].halves[0], found[0].halves[1]), found[0].a_star);
    }
}
