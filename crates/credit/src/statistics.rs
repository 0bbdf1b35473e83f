//! Mean and standardization of small populations, with explicit edge cases.

use serde::{Deserialize, Serialize};

/// Normalization of a score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Normalize {
    /// `(score - mean) / (std + epsilon)`.
    #[default]
    MeanStd,
    /// `score - mean`.
    Mean,
}

/// Advantage of a sample that is the only one in its population.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Singleton {
    /// 0, because nothing can be compared.
    #[default]
    Zero,
    /// The score itself, as if the mean were 0 and the standard deviation 1.
    Raw,
}

/// Relative tolerance of comparisons, because float sums depend on order.
pub(crate) const ROUNDING: f64 = 1e-12;

/// Count, mean and standard deviation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    /// Number of values.
    pub count: usize,
    /// Mean; the first value if all are equal up to rounding.
    pub mean: f64,
    /// Standard deviation with denominator `count - ddof`; 0 if all are equal up to rounding.
    pub std: f64,
}

impl Moments {
    /// Computes the moments; all are 0 for an empty slice. The standard deviation is 0 if
    /// `count` is at most `ddof`.
    pub fn of(values: &[f64], ddof: u8) -> Self {
        let count = values.len();
        let Some(&first) = values.first() else { return Self { count, mean: 0.0, std: 0.0 } };
        // Float noise between equal values would be amplified to advantages of 0.6 and more.
        let largest = values.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
        if values.iter().all(|&value| (value - first).abs() <= ROUNDING * largest) {
            return Self { count, mean: first, std: 0.0 };
        }
        // Scaling keeps squares and sums of large values finite.
        let scale = if largest > 1e100 { largest } else { 1.0 };
        let mean = values.iter().map(|value| value / scale).sum::<f64>() / count as f64;
        let squares = values.iter().map(|value| (value / scale - mean).powi(2)).sum::<f64>();
        let denominator = count.saturating_sub(usize::from(ddof));
        let variance = if denominator == 0 { 0.0 } else { squares / denominator as f64 };
        Self { count, mean: mean * scale, std: variance.sqrt() * scale }
    }

    /// Returns true if all values are equal.
    pub fn is_constant(&self) -> bool {
        self.std == 0.0
    }

    /// Returns the advantage of a score, which may include a penalty. With zero variance,
    /// [`Normalize::MeanStd`] gives exactly 0 for any score, and [`Normalize::Mean`] gives exactly
    /// 0 for a score without a penalty.
    pub fn standardise(
        &self,
        score: f64,
        normalize: Normalize,
        epsilon: f64,
        single_sample_advantage: Singleton,
    ) -> f64 {
        match (self.count, single_sample_advantage, normalize) {
            (0, ..) | (1, Singleton::Zero, _) => 0.0,
            (1, Singleton::Raw, Normalize::MeanStd) => score / (1.0 + epsilon),
            (1, Singleton::Raw, Normalize::Mean) => score,
            (_, _, Normalize::Mean) => {
                let away = score - self.mean;
                let rounding = self.is_constant() && away.abs() <= ROUNDING * self.mean.abs();
                if rounding { 0.0 } else { away }
            }
            (_, _, Normalize::MeanStd) if self.is_constant() => 0.0,
            (_, _, Normalize::MeanStd) => (score - self.mean) / (self.std + epsilon),
        }
    }
}

/// Pearson correlation of a stream of pairs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Correlation {
    count: f64,
    mean: [f64; 2],
    /// Sums of (x - mean)^2 and (y - mean)^2; `products` sums (x - mean)(y - mean).
    squares: [f64; 2],
    products: f64,
}

impl Correlation {
    /// Adds a pair (Welford's method).
    pub fn add(&mut self, x: f64, y: f64) {
        self.count += 1.0;
        let before = [x - self.mean[0], y - self.mean[1]];
        self.mean[0] += before[0] / self.count;
        self.mean[1] += before[1] / self.count;
        let after = [x - self.mean[0], y - self.mean[1]];
        self.squares[0] += before[0] * after[0];
        self.squares[1] += before[1] * after[1];
        self.products += before[0] * after[1];
    }

    /// Returns the coefficient in [-1, 1]; `None` if either variable is constant.
    pub fn coefficient(&self) -> Option<f64> {
        let scale = (self.squares[0] * self.squares[1]).sqrt();
        (scale > 0.0).then(|| (self.products / scale).clamp(-1.0, 1.0))
    }
}

/// Returns quantile `q` in [0, 1] of ascending values by linear interpolation (NumPy's default).
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let index = q * last as f64;
    let below = (index.floor() as usize).min(last);
    let above = (below + 1).min(last);
    let fraction = index - below as f64;
    let step = sorted[above] - sorted[below];
    // NumPy's lerp starts from the nearer end, so that both ends are exact.
    Some(if fraction < 0.5 {
        sorted[below] + step * fraction
    } else {
        sorted[above] - step * (1.0 - fraction)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_have_no_spread_at_all() {
        // The float mean of three 0.1 is 0.10000000000000002.
        let moments = Moments::of(&[0.1; 3], 1);
        assert_eq!((moments.mean, moments.std), (0.1, 0.0));
        assert_eq!(moments.standardise(0.1, Normalize::MeanStd, 1e-6, Singleton::Raw), 0.0);
        assert_eq!(moments.standardise(0.1, Normalize::Mean, 1e-6, Singleton::Raw), 0.0);
    }

    #[test]
    fn ddof_and_singletons() {
        assert_eq!(Moments::of(&[1.0, 3.0], 0).std, 1.0);
        assert_eq!(Moments::of(&[1.0, 3.0], 1).std, 2.0_f64.sqrt());
        let one = Moments::of(&[7.0], 1);
        assert_eq!(one.standardise(7.0, Normalize::MeanStd, 1e-6, Singleton::Zero), 0.0);
        assert_eq!(one.standardise(7.0, Normalize::Mean, 1e-6, Singleton::Raw), 7.0);
        assert_eq!(one.standardise(7.0, Normalize::MeanStd, 0.0, Singleton::Raw), 7.0);
    }

    #[test]
    fn correlation_is_pearsons() {
        let of = |pairs: &[(f64, f64)]| {
            let mut correlation = Correlation::default();
            for &(x, y) in pairs {
                correlation.add(x, y);
            }
            correlation.coefficient()
        };
        // Means 2 and 3; products 3, squares 2 and 6.
        let expected = 3.0 / 12.0f64.sqrt();
        assert!((of(&[(1.0, 2.0), (2.0, 2.0), (3.0, 5.0)]).unwrap() - expected).abs() < 1e-12);
        assert_eq!(of(&[(1.0, -1.0), (2.0, -2.0)]), Some(-1.0));
        assert_eq!(of(&[(1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn huge_values_stay_finite() {
        let moments = Moments::of(&[1e308, -1e308, 1e308], 1);
        assert!(moments.mean.is_finite() && moments.std.is_finite());
    }

    #[test]
    fn quantiles_interpolate() {
        let values = [1.0, 2.0, 4.0, 8.0];
        assert_eq!(quantile(&values, 0.25), Some(1.75));
        assert_eq!(quantile(&values, 0.75), Some(5.0));
        assert_eq!(quantile(&values, 1.0), Some(8.0));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
