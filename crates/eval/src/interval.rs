//! Intervals of success rates.

use serde::{Deserialize, Serialize};

/// 0.975 quantile of the standard normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// Success rate with its Wilson 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Number of successes.
    pub successes: usize,
    /// Number of trials.
    pub trials: usize,
    /// `successes / trials`; 0 without trials.
    pub rate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Rate {
    /// Computes the rate and interval.
    pub fn new(successes: usize, trials: usize) -> Self {
        let (low, high) = wilson(successes, trials);
        let rate = if trials == 0 { 0.0 } else { successes as f64 / trials as f64 };
        Self { successes, trials, rate, low, high }
    }

    /// Returns true if the intervals of the two rates do not overlap.
    pub fn is_disjoint_from(&self, other: &Self) -> bool {
        self.high < other.low || other.high < self.low
    }
}

/// Returns Wilson's 95 % score interval
/// `(p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n)`; `(0, 1)` without trials.
///
/// ```
/// let (low, high) = turnwise_eval::wilson(8, 10);
/// assert!((low - 0.490162).abs() < 1e-6 && (high - 0.943318).abs() < 1e-6);
/// ```
pub fn wilson(successes: usize, trials: usize) -> (f64, f64) {
    if trials == 0 {
        return (0.0, 1.0);
    }
    wilson_of_rate(successes as f64 / trials as f64, trials as f64)
}

/// [`wilson`] interval of rate `p` over `n` tasks. Several evaluations of the same task count as
/// one task, so the interval may be too wide.
pub(crate) fn wilson_of_rate(p: f64, n: f64) -> (f64, f64) {
    let z2 = Z * Z;
    let centre = p + z2 / (2.0 * n);
    let spread = Z * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z2 / n;
    // Rates of 0 and 1 are exact ends, without rounding errors.
    let low = if p <= 0.0 { 0.0 } else { (centre - spread) / scale };
    let high = if p >= 1.0 { 1.0 } else { (centre + spread) / scale };
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_and_symmetry() {
        assert_eq!(wilson(0, 0), (0.0, 1.0));
        for n in 1..500 {
            assert_eq!(
                (wilson_of_rate(0.0, f64::from(n)).0, wilson_of_rate(1.0, f64::from(n)).1),
                (0.0, 1.0)
            );
        }
        let (low, high) = wilson(0, 20);
        assert_eq!(low, 0.0);
        // 1 - exp-free closed form: z^2 / (n + z^2)
        assert!((high - Z * Z / (20.0 + Z * Z)).abs() < 1e-12);
        let (mirrored_low, mirrored_high) = wilson(20, 20);
        assert!((mirrored_low - (1.0 - high)).abs() < 1e-12 && mirrored_high == 1.0);
    }

    #[test]
    fn intervals_apart() {
        assert!(Rate::new(10, 100).is_disjoint_from(&Rate::new(60, 100)));
        assert!(!Rate::new(50, 100).is_disjoint_from(&Rate::new(55, 100)));
    }
}
