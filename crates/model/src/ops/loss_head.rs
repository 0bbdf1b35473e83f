use super::Real;
use super::dispatch::{LANES, Loop, fold, maximum, vectorised};

/// Statistics of one target.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RowStatistics<T> {
    /// `ln sum_j e^{z_j}`.
    pub(crate) log_sum: T,
    /// `ln p_target`.
    pub(crate) logprob: T,
    /// `H = -sum_j p_j ln p_j`.
    pub(crate) entropy: T,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RowSums<T> {
    max: T,
    log: T,
    entropy: T,
}

impl<T: Real> RowSums<T> {
    pub(crate) fn of(self, logits: &[T], target: usize) -> RowStatistics<T> {
        let Self { max, log, entropy } = self;
        RowStatistics { log_sum: max + log, logprob: logits[target] - max - log, entropy }
    }
}

/// Returns the statistics of a row of logits `z`, already divided by the temperature.
///
/// Shifting avoids cancellation in the entropy: `H = ln s - sum_j e^{z_j - m} (z_j - m) / s` with
/// `m = max z` and `s = sum_j e^{z_j - m}`.
pub(crate) fn row_sums<T: Real>(logits: &[T]) -> RowSums<T> {
    struct Rows;

    impl<T: Real> Loop<&[T]> for Rows {
        type Output = RowSums<T>;
        #[inline(always)]
        fn run(logits: &[T]) -> RowSums<T> {
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
            RowSums { max, log, entropy: log - fold(products) / sum }
        }
    }

    vectorised(Rows, logits)
}

#[cfg(test)]
pub(crate) fn row_statistics<T: Real>(logits: &[T], target: usize) -> RowStatistics<T> {
    row_sums(logits).of(logits, target)
}

/// Overwrites a row of logits with its gradient
/// `d z_j = sum_targets d_logprob (1[j = target] - p_j) - d_entropy p_j (ln p_j + H)`.
///
/// `targets` lists the token, `d_logprob` and `d_entropy` of each target. `row` has the statistics
/// of any target; the targets' statistics differ only in log-prob.
pub(crate) fn row_backward<T: Real>(
    logits: &mut [T],
    row: RowStatistics<T>,
    targets: impl Iterator<Item = (usize, [T; 2])> + Clone,
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

    let mut sums: Option<[T; 2]> = None;
    for (_, [d_logprob, d_entropy]) in targets.clone() {
        sums = Some(sums.map_or([d_logprob, d_entropy], |[a, b]| [a + d_logprob, b + d_entropy]));
    }
    let [d_logprob, d_entropy] = sums.unwrap_or([T::ZERO; 2]);
    vectorised(Rows, (&mut *logits, row, d_logprob, d_entropy));
    for (target, [d_logprob, _]) in targets {
        logits[target] += d_logprob;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_gradient, random};

    #[test]
    fn statistics_are_their_definitions_and_backward_their_derivative() {
        let logits: Vec<f64> = random(1, 53).iter().map(|z| 3.0 * z + 40.0).collect();
        let row = row_statistics(&logits, 17);
        assert_eq!(row_sums(&logits).of(&logits, 3).entropy, row.entropy);
        let sum: f64 = logits.iter().map(|z| z.exp()).sum();
        assert!((row.logprob - (logits[17].exp() / sum).ln()).abs() < 1e-12);
        let entropy: f64 = logits.iter().map(|z| -(z.exp() / sum) * (z.exp() / sum).ln()).sum();
        assert!((row.entropy - entropy).abs() < 1e-12);
        for (d_logprob, d_entropy) in [(0.7, -0.3), (-1.3, 0.0), (0.0, 0.4)] {
            let mut d = logits.clone();
            row_backward(&mut d, row, std::iter::once((17, [d_logprob, d_entropy])));
            check_gradient("logits", &logits, &d, |logits| {
                let row = row_statistics(logits, 17);
                d_logprob * row.logprob + d_entropy * row.entropy
            });
        }
        // Three targets, two of them equal.
        let targets = [(17, [0.7, -0.3]), (4, [-1.1, 0.2]), (17, [0.4, 0.0])];
        let mut d = logits.clone();
        row_backward(&mut d, row, targets.into_iter());
        check_gradient("logits", &logits, &d, |logits| {
            let of = |(target, [d, e]): (usize, [f64; 2])| {
                let row = row_statistics(logits, target);
                d * row.logprob + e * row.entropy
            };
            targets.into_iter().map(of).sum()
        });
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
