//! The data set: each line is a [`Trajectory`] as JSON plus `truth` (one entry per turn) and
//! `benchmark` (how the truth was measured).

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use turnwise_core::Trajectory;

/// Estimated true advantage of a turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnTruth {
    /// `V(s_t)`: mean return from the state before the turn.
    pub v: f64,
    /// Standard error of `v`.
    pub v_error: f64,
    /// `Q(s_t, a_t)`: reward plus discounted mean return from the state after the turn.
    pub q: f64,
    /// Standard error of `q`.
    pub q_error: f64,
    /// `A* = Q - V`.
    pub a_star: f64,
    /// Standard error of `a_star`.
    pub a_star_error: f64,
    /// Number of continuations from the state before the turn.
    pub k: usize,
    /// `A*` estimated from each half of the continuations of the states before and after the turn.
    pub halves: [f64; 2],
    /// Returns of the continuations from the state before the turn, in sampling order; returns at
    /// odd indices form the second half. May be absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub returns: Vec<f64>,
}

/// How the true advantages were measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TruthSource {
    /// `branching` or `tree`.
    pub method: String,
    /// Measured policy: run and checkpoint, or folder.
    pub policy: String,
    /// SHA-256 of the config with defaults, without the seed.
    pub config: String,
    /// Split of the tasks.
    pub split: String,
    /// Discount of returns.
    pub gamma: f64,
    /// Number of continuations per state (`branching`), or of sampled trajectories per task
    /// (`tree`).
    pub continuations: usize,
    /// Maximum number of continuations over all tasks; those beyond `continuations` per state go to
    /// states with large standard errors. With 0, every state got the same number of continuations.
    #[serde(default)]
    pub budget: usize,
    /// Number of scored trajectories per task.
    pub samples: usize,
    /// Number of tasks.
    pub tasks: usize,
    /// Sampling seed.
    pub seed: u64,
}

/// A trajectory with its true advantages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TruthLine {
    /// The trajectory.
    #[serde(flatten)]
    pub trajectory: Trajectory,
    /// One entry per turn; `None` for a turn without a true advantage.
    pub truth: Vec<Option<TurnTruth>>,
    /// How the true advantages were measured.
    pub benchmark: TruthSource,
}

impl<'de> Deserialize<'de> for TruthLine {
    /// Reads the line twice. A derived implementation would buffer the trajectory's fields, and a
    /// tool cannot be read from that buffer, because it keeps the text of its definition.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Measured {
            truth: Vec<Option<TurnTruth>>,
            benchmark: TruthSource,
        }

        let line = Box::<RawValue>::deserialize(from)?;
        let Measured { truth, benchmark } = serde_json::from_str(line.get()).map_err(D::Error::custom)?;
        let trajectory = serde_json::from_str(line.get()).map_err(D::Error::custom)?;
        Ok(Self { trajectory, truth, benchmark })
    }
}

impl TruthLine {
    /// Checks that `truth` has one entry per turn of the trajectory.
    ///
    /// # Errors
    /// Fails if the two numbers differ, and states both.
    pub fn check(&self) -> Result<(), String> {
        let (turns, truth) = (self.trajectory.turns.len(), self.truth.len());
        if turns == truth { Ok(()) } else { Err(format!("{turns} turns have {truth} entries of `truth`")) }
    }
}

/// Returns the mean of independent values and its standard error, which is 0 for fewer than two
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

/// Returns the values at even and at odd indices.
pub fn halves(values: &[f64]) -> [Vec<f64>; 2] {
    [0, 1].map(|first| values.iter().skip(first).step_by(2).copied().collect())
}

/// Estimates each turn's true advantage from its reward and the returns from the states before and
/// after it. After the last turn, the return is 0.
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
    fn lines_with_tools_read_back() {
        let mut trajectory = Trajectory::new(turnwise_core::Task::new("t", "k", "goal"), Vec::new());
        let tool = r#"{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"b":{},"a":{}}}}}"#;
        trajectory.tools = vec![turnwise_core::Tool::from_json(tool).unwrap()];
        let line = TruthLine { trajectory, truth: vec![None], benchmark: source() };
        let text = serde_json::to_string(&line).unwrap();
        assert_eq!(serde_json::from_str::<TruthLine>(&text).unwrap(), line);
        for missing in ["truth", "benchmark", "task"] {
            let mut other: serde_json::Value = serde_json::from_str(&text).unwrap();
            other.as_object_mut().unwrap().remove(missing);
            let error = serde_json::from_value::<TruthLine>(other).unwrap_err().to_string();
            assert!(error.contains(missing), "{error}");
        }
    }

    #[test]
    fn q_of_a_turn_is_its_reward_and_v_of_the_next() {
        // Rewards 0.5 and 1; returns 1 or 0 from the start, and 1 in three of four after turn 1.
        let first = [1.0, 0.0, 1.0, 0.0];
        let second = [1.0, 1.0, 1.0, 0.0];
        let found = truth_of_turns(&[0.5, 1.0], &[&first, &second], 0.9);
        let close =
            |found: f64, expected: f64| assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        close(found[0].v, 0.5);
        close(found[0].q, 0.5 + 0.9 * 0.75);
        close(found[0].a_star, 0.5 + 0.9 * 0.75 - 0.5);
        // sqrt(4/3 * 0.25 / 4), from the sample variance.
        close(found[0].v_error, (1.0_f64 / 3.0 / 4.0).sqrt());
        close(found[0].q_error, 0.9 * (0.25_f64 / 4.0).sqrt());
        close(found[0].a_star_error, (1.0 / 12.0 + 0.81 * 0.0625_f64).sqrt());
        // Even: 1, 1 and 1, 1. Odd: 0, 0 and 1, 0.
        close(found[0].halves[0], 0.5 + 0.9 - 1.0);
        close(found[0].halves[1], 0.5 + 0.45);
        // Nothing follows, so Q is exact.
        assert_eq!((found[1].q, found[1].q_error, found[1].a_star), (1.0, 0.0, 0.25));
        assert_eq!((found[1].k, found[1].returns.as_slice()), (4, second.as_slice()));
        close(f64::midpoint(found[0].halves[0], found[0].halves[1]), found[0].a_star);
    }
}
