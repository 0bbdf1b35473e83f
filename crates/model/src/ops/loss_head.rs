//! From hidden rows to log-probabilities and entropies, and back.

use super::Real;
use super::dispatch::{LANES, Loop, fold, maximum, vectorised};

/// Numbers kept of a row of logits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RowStatistics<T> {
    /// `ln sum_j e^{z_j}`.
    pub(crate) log_sum: T,
    /// `ln p_target`.
    pub(crate) logprob: T,
    /// `H = -sum_j p_j ln p_j`.
    pub(crate) entropy: T,
}

/// Statistics of one row of logits `z` (already divided by the temperature).
///
/// Entropy from shifted logits, `H = ln s - sum_j e^{z_j - m} (z_j - m) / s` with `m = max z` and
/// `s = sum_j e^{z_j - m}`, so that no large numbers cancel.
pub(crate) fn row_statistics<T: Real>(logits: &[T], target: usize) -> RowStatistics<T> {
    struct Rows;

    impl<T: Real> Loop<(&[T], usize)> for Rows {
        type Output = RowStatistics<T>;
        #[inline(always)]
        fn run((logits, target): (&[T], usize)) -> RowStatistics<T> {
            let max = maximum(logits);
            let (mut sums, mut products) = ([T::ZERO; LANES], [T::ZERO; LANES]);
            let (chunks, rest) = logits.as_chunks::<LANES>();
            for chunk in chunks {
                for lane in 0..LANES {
                    let z = chunk[lane] - max;
                    let e = z.exp();
                    sums[lane] += e;
                    products[lane] += e * z;
                }
            }
            for (lane, &logit) in rest.iter().enumerate() {
                let z = logit - max;
                let e = z.exp();
                sums[lane] += e;
                products[lane] += e * z;
            }
            let sum = fold(sums);
            let log = sum.ln();
            RowStatistics {
                log_sum: max + log,
                logprob: logits[target] - max - log,
                entropy: log - fold(products) / sum,
            }
        }
    }

    vectorised(Rows, (logits, target))
}

/// Overwrites logits with the derivative with respect to them:
/// `d z_j = d_logprob (1[j = target] - p_j) - d_entropy p_j (ln p_j + H)`.
pub(crate) fn row_backward<T: Real>(
    logits: &mut [T],
    target: usize,
    row: RowStatistics<T>,
    d_logprob: T,
    d_entropy: T,
) {
    struct Rows;

    impl<T: Real> Loop<(&mut [T], RowStatistics<T>, T, T)> for Rows {
        type Output = ();
        #[inline(always)]
        fn run((logits, row, d_logprob, d_entropy): (&mut [T], RowStatistics<T>, T, T)) {
            if d_entropy == T::ZERO {
                for logit in &mut *logits {
                    *logit = -(d_logprob * (*logit - row.log_sum).exp());
                }
            } else {
                for logit in &mut *logits {
                    let logprob = *logit - row.log_sum;
                    *logit = -(logprob.exp() * (d_logprob + d_entropy * (logprob + row.entropy)));
                }
            }
        }
    }

    vectorised(Rows, (&mut *logits, row, d_logprob, d_entropy));
    logits[target] += d_logprob;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_gradient, random};

    #[test]
    fn statistics_are_their_definitions_and_backward_their_derivative() {
        let logits: Vec<f64> = random(1, 53).iter().map(|z| 3.0 * z + 40.0).collect();
        let row = row_statistics(&logits, 17);
        let sum: f64 = logits.iter().map(|z| z.exp()).sum();
        assert!((row.logprob - (logits[17].exp() / sum).ln()).abs() < 1e-12);
        let entropy: f64 = logits.iter().map(|z| -(z.exp() / sum) * (z.exp() / sum).ln()).sum();
        assert!((row.entropy - entropy).abs() < 1e-12);
        for (d_logprob, d_entropy) in [(0.7, -0.3), (-1.3, 0.0), (0.0, 0.4)] {
            let mut d = logits.clone();
            row_backward(&mut d, 17, row, d_logprob, d_entropy);
            check_gradient("logits", &logits, &d, |logits| {
                let row = row_statistics(logits, 17);
                d_logprob * row.logprob + d_entropy * row.entropy
            });
        }
    }

    #[test]
    fn single_precision_stays_close_for_peaked_rows() {
        let wide: Vec<f64> = random(2, 2000).iter().map(|z| 8.0 * z).collect();
        let narrow: Vec<f32> = wide.iter().map(|&z| z as f32).collect();
        for target in [0, 999, 1999] {
            let (exact, row) = (row_statistics(&wide, target), row_statistics(&narrow, target));
            assert!((exact.logprob - f64::from(row.logprob)).abs() < 1e-5 * exact.logprob.abs().max(1.0));
            assert!((exact.entropy - f64::from(row.entropy)).abs() < 1e-5);
        }
    }
}
