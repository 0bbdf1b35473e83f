//! The benchmark's data set: trajectories with the true advantages of their turns.
//!
//! Each line is a [`Trajectory`] as JSON with two more keys: `truth` has one entry per turn, and
//! `benchmark` describes how it was measured. Code that reads trajectory files also accepts such
//! lines.

use serde::{Deserialize, Serialize};
use turnwise_core::Trajectory;

/// Estimate of a turn's true advantage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnTruth {
    /// `V(s_t)`: mean return of continuations from the state before the turn.
    pub v: f64,
    /// Standard error of `v`.
    pub v_error: f64,
    /// `Q(s_t, a_t)`: the turn's reward plus the discounted mean return from the state after it.
    pub q: f64,
    /// Standard error of `q`.
    pub q_error: f64,
    /// `A* = Q - V`.
    pub a_star: f64,
    /// Standard error of `a_star`.
    pub a_star_error: f64,
    /// Number of continuations from the state before the turn.
    pub k: usize,
    /// `A*` estimated from each half of the continuations of both states.
    pub halves: [f64; 2],
    /// Returns of the continuations from the state before the turn, in sampling order. Odd indices
    /// form the second half. Empty if the file does not contain them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub returns: Vec<f64>,
}

/// How the truth was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TruthSource {
    /// `branching` or `tree`.
    pub method: String,
    /// The measured policy: run and checkpoint, or folder name.
    pub policy: String,
    /// SHA-256 of the config including defaults, but without the seed.
    pub config: String,
    /// Split that the tasks are from.
    pub split: String,
    /// Discount factor of the return.
    pub gamma: f64,
    /// Number of continuations from each state, or number of sampled trajectories per task.
    pub continuations: usize,
    /// Maximum total number of continuations. Continuations beyond the fixed number per state go to
    /// states with large standard errors. 0: none.
    #[serde(default)]
    pub budget: usize,
    /// Number of scored trajectories per task.
    pub samples: usize,
    /// Number of tasks.
    pub tasks: usize,
    /// Seed for all sampling.
    pub seed: u64,
}

/// A trajectory with the truth of its turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TruthLine {
    /// The trajectory.
    #[serde(flatten)]
    pub trajectory: Trajectory,
    /// One entry per turn; `None` for turns without a ground truth.
    pub truth: Vec<Option<TurnTruth>>,
    /// How the truth was measured.
    pub benchmark: TruthSource,
}

impl TruthLine {
    /// Checks that `truth` has one entry per turn.
    ///
    /// # Errors
    /// Returns both numbers if they differ.
    pub fn check(&self) -> Result<(), String> {
        let (turns, truth) = (self.trajectory.turns.len(), self.truth.len());
        if turns == truth { Ok(()) } else { Err(format!("{turns} turns have {truth} entries of `truth`")) }
    }
}

/// Returns the mean of independent values and its standard error. The error is 0 for fewer than two
/// values.
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

/// Returns the values at even indices, and those at odd indices.
pub fn halves(values: &[f64]) -> [Vec<f64>; 2] {
    [0, 1].map(|first| values.iter().skip(first).step_by(2).copied().collect())
}

/// Estimates the truth of each turn of a trajectory from its continuations. `returns[t]` has the
/// returns from the state before turn `t`, `rewards[t]` is the turn's reward. The state after the
/// last turn has return 0.
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
        // Two turns with rewards 0.5 and 1: returns 1 or 0 from the start; 1 in three of four after
        // turn 1.
        let first = [1.0, 0.0, 1.0, 0.0];
        let second = [1.0, 1.0, 1.0, 0.0];
        let found = truth_of_turns(&[0.5, 1.0], &[&first, &second], 0.9);
        let close =
            |found: f64, expected: f64| assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        close(found[0].v, 0.5);
        close(found[0].q, 0.5 + 0.9 * 0.75);
        close(found[0].a_star, 0.5 + 0.9 * 0.75 - 0.5);
        // sqrt(4/3 * 0.25 / 4), from the sample variance over four returns.
        close(found[0].v_error, (1.0_f64 / 3.0 / 4.0).sqrt());
        close(found[0].q_error, 0.9 * (0.25_f64 / 4.0).sqrt());
        close(found[0].a_star_error, (1.0 / 12.0 + 0.81 * 0.0625_f64).sqrt());
        // Even indices: 1, 1 and 1, 1. Odd indices: 0, 0 and 1, 0.
        close(found[0].halves[0], 0.5 + 0.9 - 1.0);
        close(found[0].halves[1], 0.5 + 0.45);
        // Nothing follows the last turn, so its Q is known exactly.
        assert_eq!((found[1].q, found[1].q_error, found[1].a_star), (1.0, 0.0, 0.25));
        assert_eq!((found[1].k, found[1].returns.as_slice()), (4, second.as_slice()));
        close(f64::midpoint(found[0].halves[0], found[0].halves[1]), found[0].a_star);
    }
}
