//! Stratified bootstrap with percentile intervals.

use serde::{Deserialize, Serialize};
use turnwise_core::{Purpose, Rng, Seed};

/// Scores by stratum: `scores[k][n]` is the score of run (or task) `n` in stratum `k`.
pub type Strata = [Vec<f64>];

/// Default number of resamples.
pub const RESAMPLES: usize = 10_000;

/// 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// A statistic's value and, if computable, its bootstrap interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// 95 % confidence interval.
    pub interval: Option<Interval>,
}

/// Bootstrap of a statistic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bootstrap {
    /// Number of resamples.
    pub resamples: usize,
    /// Seed; each resample has its own random stream, so resamples may be computed in any order.
    pub seed: u64,
}

impl Default for Bootstrap {
    fn default() -> Self {
        Self { resamples: RESAMPLES, seed: 0 }
    }
}

impl Bootstrap {
    /// Returns the 95 % percentile interval of a statistic of one or more samples; `None` if no
    /// stratum has two scores. Each stratum is resampled independently, with replacement (Efron
    /// 1979; Agarwal et al. 2021, section 4.1).
    pub fn interval(
        &self,
        samples: &[&Strata],
        statistic: impl Fn(&[Vec<Vec<f64>>]) -> f64,
    ) -> Option<Interval> {
        let varies = samples.iter().any(|strata| strata.iter().any(|scores| scores.len() > 1));
        if !varies || self.resamples == 0 {
            return None;
        }
        let mut drawn: Vec<Vec<Vec<f64>>> = samples.iter().map(|strata| strata.to_vec()).collect();
        Some(self.percentiles(|rng| {
            for (to, from) in drawn.iter_mut().zip(samples) {
                for (to, from) in to.iter_mut().zip(*from) {
                    for score in to.iter_mut() {
                        *score = from[rng.below(from.len())];
                    }
                }
            }
            statistic(&drawn)
        }))
    }

    /// Returns the 95 % percentile interval of a statistic when whole runs are resampled; `None` if
    /// no sample has two runs. `runs` gives the number of runs in each sample; `statistic` receives
    /// the indices of the drawn runs.
    ///
    /// A run's scores are correlated, because they share a seed. The interval of [`Self::interval`]
    /// would therefore be too narrow by a factor of up to the square root of the number of strata.
    pub fn interval_of_runs(
        &self,
        runs: &[usize],
        statistic: impl Fn(&[Vec<usize>]) -> f64,
    ) -> Option<Interval> {
        if runs.iter().all(|&count| count <= 1) || self.resamples == 0 {
            return None;
        }
        let mut drawn: Vec<Vec<usize>> = runs.iter().map(|&count| vec![0; count]).collect();
        Some(self.percentiles(|rng| {
            for sample in &mut drawn {
                let count = sample.len();
                sample.fill_with(|| rng.below(count));
            }
            statistic(&drawn)
        }))
    }

    fn percentiles(&self, mut resampled: impl FnMut(&mut Rng) -> f64) -> Interval {
        let of = |resample: usize| Seed::derive(self.seed, Purpose::Resampling, &[resample as u64]).rng();
        let mut found: Vec<f64> = (0..self.resamples).map(|resample| resampled(&mut of(resample))).collect();
        found.sort_by(f64::total_cmp);
        Interval { low: percentile(&found, 0.025), high: percentile(&found, 0.975) }
    }
}

/// Returns the `share` quantile of ascending values by linear interpolation:
/// `x_floor(h) + (h - floor(h)) (x_floor(h)+1 - x_floor(h))` with `h = share (n - 1)` (Hyndman and
/// Fan 1996, type 7; NumPy's default). Returns 0 for an empty slice.
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let place = share.clamp(0.0, 1.0) * last as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (place - place.floor()) * (sorted[above] - sorted[below])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    fn of_all(samples: &[Vec<Vec<f64>>]) -> f64 {
        mean(&samples[0].concat())
    }

    #[test]
    fn percentiles_are_linear_between_values() {
        let sorted = [1.0, 2.0, 4.0, 8.0];
        assert_eq!(percentile(&sorted, 0.0), 1.0);
        assert_eq!(percentile(&sorted, 1.0), 8.0);
        assert_eq!(percentile(&sorted, 0.5), 3.0);
        assert!((percentile(&sorted, 0.9) - 6.8).abs() < 1e-12);
        assert_eq!(percentile(&[], 0.5), 0.0);
    }

    #[test]
    fn strata_are_drawn_from_themselves_alone() {
        // Draws within a stratum change nothing.
        let scores = [vec![0.0; 5], vec![1.0; 5]];
        let found = Bootstrap::default().interval(&[&scores], of_all).unwrap();
        assert_eq!(found, Interval { low: 0.5, high: 0.5 });
        let pooled = [scores.concat()];
        let found = Bootstrap::default().interval(&[&pooled], of_all).unwrap();
        assert!(found.low < 0.3 && found.high > 0.7, "{found:?}");
    }

    /// Two whole runs have four equally likely resamples, whatever the number of strata.
    #[test]
    fn runs_are_drawn_as_a_whole() {
        let rates = [[0.2, 0.8], [0.3, 0.9], [0.1, 0.7]];
        let of = |drawn: &[Vec<usize>]| {
            mean(&rates.iter().flat_map(|kind| drawn[0].iter().map(|&run| kind[run])).collect::<Vec<_>>())
        };
        let found = Bootstrap::default().interval_of_runs(&[2], of).unwrap();
        assert!((found.low - 0.2).abs() < 1e-12 && (found.high - 0.8).abs() < 1e-12, "{found:?}");
        let strata = rates.map(|kind| kind.to_vec());
        let apart = Bootstrap::default().interval(&[&strata], of_all).unwrap();
        assert!(apart.high - apart.low < found.high - found.low, "{apart:?}");
        assert_eq!(Bootstrap::default().interval_of_runs(&[1, 1], |_| 0.0), None);
    }

    #[test]
    fn one_score_a_stratum_has_no_interval() {
        let one = [vec![0.3], vec![0.9]];
        assert_eq!(Bootstrap::default().interval(&[&one], of_all), None);
        assert_eq!(Bootstrap::default().interval(&[], |_| 0.0), None);
    }

    #[test]
    fn seeds_and_nothing_else_decide() {
        let scores = [vec![0.1, 0.5, 0.7], vec![0.2, 0.4, 0.9, 0.3]];
        let at = |seed| {
            let bootstrap = Bootstrap { resamples: 200, seed };
            bootstrap.interval(&[&scores], |drawn| mean(&drawn[0].concat())).unwrap()
        };
        assert_eq!(at(1), at(1));
        assert_ne!(at(1), at(2));
    }

    /// Two runs in each of two strata have 16 equally likely resamples.
    #[test]
    fn the_interval_is_that_of_all_resamples() {
        let scores = [vec![0.0, 0.4], vec![0.2, 0.9]];
        let mut all = Vec::new();
        for a in [0.0, 0.4] {
            for b in [0.0, 0.4] {
                for c in [0.2, 0.9] {
                    all.extend([0.2, 0.9].map(|d| (a + b + c + d) / 4.0));
                }
            }
        }
        all.sort_by(f64::total_cmp);
        let found = Bootstrap { resamples: 20_000, seed: 3 }.interval(&[&scores], of_all).unwrap();
        // 1 of 16 is more than 2.5 %, so the interval spans all means.
        assert!((found.low - all[0]).abs() < 1e-12 && (found.high - all[15]).abs() < 1e-12, "{found:?}");
    }
}
