//! Differences between two methods' scores on the same turns. The intervals of the differences are
//! often far narrower than those of the scores, because a task that is hard for one method is hard
//! for both. An undefined correlation counts as 0, because a method with equal advantages within a
//! trajectory (GRPO) assigns no credit there.

use serde::Serialize;

use crate::bootstrap::Estimate;
use crate::score::{Compared, ScoreSettings, estimate};

/// A method's scores minus those of a baseline; a difference is `None` if the score is undefined
/// for both methods.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Method name.
    pub name: String,
    /// Baseline name.
    pub baseline: String,
    /// Difference in Pearson's correlation over all turns.
    pub pearson: Option<Estimate>,
    /// Difference in Pearson's correlation over all turns, corrected for noise.
    pub pearson_corrected: Option<Estimate>,
    /// Difference in Pearson's correlation within trajectories.
    pub within: Option<Estimate>,
    /// Difference in Pearson's correlation within trajectories, corrected for noise.
    pub within_corrected: Option<Estimate>,
    /// Difference in the fraction of correct signs.
    pub signs: Option<Estimate>,
}

impl Difference {
    /// Compares two methods on the same turns.
    pub fn new(
        (name, method): (&str, &Compared),
        (baseline, base): (&str, &Compared),
        settings: &ScoreSettings,
    ) -> Self {
        let of = |statistic: fn(&Compared, &[usize]) -> Option<f64>| {
            estimate(settings, method.tasks(), |tasks| less(statistic(method, tasks), statistic(base, tasks)))
        };
        Self {
            name: name.to_owned(),
            baseline: baseline.to_owned(),
            pearson: of(Compared::pearson),
            pearson_corrected: of(Compared::pearson_corrected),
            within: of(Compared::within),
            within_corrected: of(Compared::within_corrected),
            signs: of(Compared::signs),
        }
    }
}

/// Returns `number - baseline`, with 0 for an undefined number; `None` if both are undefined.
pub fn less(number: Option<f64>, baseline: Option<f64>) -> Option<f64> {
    match (number, baseline) {
        (None, None) => None,
        (number, baseline) => Some(number.unwrap_or(0.0) - baseline.unwrap_or(0.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::Against;
    use crate::turns::{ScoredTurn, ScoredTurns};

    /// Tasks of four turns, and two methods whose errors grow with the task's index.
    fn turns() -> (ScoredTurns, Vec<f64>, Vec<f64>) {
        let mut turns = ScoredTurns { tasks: 8, trajectories: 8, ..ScoredTurns::default() };
        let (mut better, mut worse) = (Vec::new(), Vec::new());
        for task in 0..8 {
            for (place, truth) in [-0.3, 0.1, 0.4, -0.2].into_iter().enumerate() {
                let disturbance = [0.5, -0.5, 0.5, -0.5][place] * f64::from(task) * 0.2;
                turns.turns.push(ScoredTurn {
                    place: [0, task as usize, 0, place],
                    task: task as usize,
                    trajectory: task as usize,
                    truth,
                    error: 0.05,
                    halves: [truth + 0.02, truth - 0.02],
                    ..ScoredTurn::default()
                });
                better.push(truth + disturbance);
                worse.push(truth + 1.4 * disturbance);
            }
        }
        (turns, better, worse)
    }

    #[test]
    fn a_paired_difference_is_surer_than_the_two_scores() {
        let (turns, better, worse) = turns();
        let settings = ScoreSettings::default();
        let of = |advantages: &[f64]| Compared::new(&turns, advantages, Against::All, &settings);
        let (better, worse) = (of(&better), of(&worse));
        let found = Difference::new(("better", &better), ("worse", &worse), &settings);
        let width = |estimate: Option<Estimate>| {
            let interval = estimate.unwrap().interval.unwrap();
            interval.high - interval.low
        };
        let all: Vec<usize> = (0..8).collect();
        let expected = better.pearson(&all).unwrap() - worse.pearson(&all).unwrap();
        let difference = found.pearson.unwrap();
        assert!((difference.value - expected).abs() < 1e-12 && expected > 0.0);
        assert!(difference.interval.unwrap().low > 0.0, "{difference:?}");
        let alone = |compared: &Compared| estimate(&settings, 8, |tasks| compared.pearson(tasks));
        let unpaired = width(alone(&better)) + width(alone(&worse));
        assert!(width(found.pearson) < 0.5 * unpaired, "{difference:?} {unpaired}");
        let back = Difference::new(("worse", &worse), ("better", &better), &settings);
        assert!((back.pearson.unwrap().value + expected).abs() < 1e-12);
        let itself = Difference::new(("worse", &worse), ("worse", &worse), &settings);
        let nothing = itself.within_corrected.unwrap();
        assert_eq!(
            (nothing.value, nothing.interval.unwrap().low, nothing.interval.unwrap().high),
            (0.0, 0.0, 0.0)
        );
    }

    #[test]
    fn credit_that_does_not_exist_counts_as_none() {
        let (turns, better, _) = turns();
        let settings = ScoreSettings::default();
        let outcome: Vec<f64> = turns.turns.iter().map(|turn| turn.task as f64).collect();
        let of = |advantages: &[f64]| Compared::new(&turns, advantages, Against::All, &settings);
        let (method, flat) = (of(&better), of(&outcome));
        let found = Difference::new(("m", &method), ("outcome", &flat), &settings);
        let all: Vec<usize> = (0..8).collect();
        assert_eq!(flat.within(&all), None);
        assert_eq!(found.within.map(|estimate| estimate.value), method.within(&all));
        assert_eq!(Difference::new(("outcome", &flat), ("outcome", &flat), &settings).within, None);
    }
}
