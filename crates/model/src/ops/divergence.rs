use super::Real;
use super::dispatch::{LANES, Loop, fold, vectorised};

/// Returns `KL[p || q] = sum_j p_j (ln p_j - ln q_j)` of two rows of logits with given
/// log-sum-exps.
pub(crate) fn row_divergence<T: Real>(first: &[T], second: &[T], log_sums: [T; 2]) -> T {
    struct Rows;

    impl<T: Real> Loop<(&[T], &[T], [T; 2])> for Rows {
        type Output = T;
        #[inline(always)]
        fn run((first, second, log_sums): (&[T], &[T], [T; 2])) -> T {
            let term = |p: T, q: T| {
                let p = p - log_sums[0];
                p.exp() * (p - (q - log_sums[1]))
            };
            let mut sums = [T::ZERO; LANES];
            let ((first, first_rest), (second, second_rest)) =
                (first.as_chunks::<LANES>(), second.as_chunks::<LANES>());
            for (p, q) in first.iter().zip(second) {
                for lane in 0..LANES {
                    sums[lane] += term(p[lane], q[lane]);
                }
            }
            for (lane, (&p, &q)) in first_rest.iter().zip(second_rest).enumerate() {
                sums[lane] += term(p, q);
            }
            fold(sums)
        }
    }

    vectorised(Rows, (first, second, log_sums))
}

/// Overwrites both rows with their gradients, given the loss's gradient `d` with respect to
/// `KL[p || q]`: the first with `d p_j (ln p_j - ln q_j - KL)`, the second with `d (q_j - p_j)`.
pub(crate) fn row_divergence_backward<T: Real>(
    first: &mut [T],
    second: &mut [T],
    log_sums: [T; 2],
    divergence: T,
    d: T,
) {
    struct Rows;

    impl<T: Real> Loop<(&mut [T], &mut [T], [T; 2], T, T)> for Rows {
        type Output = ();
        #[inline(always)]
        fn run((first, second, log_sums, divergence, d): (&mut [T], &mut [T], [T; 2], T, T)) {
            for (first, second) in first.iter_mut().zip(second) {
                let (log_p, log_q) = (*first - log_sums[0], *second - log_sums[1]);
                let p = log_p.exp();
                *first = d * p * (log_p - log_q - divergence);
                *second = d * (log_q.exp() - p);
            }
        }
    }

    vectorised(Rows, (first, second, log_sums, divergence, d));
}

#[cfg(test)]
mod tests {
    use super::super::loss_head::row_statistics;
    use super::*;
    use crate::testing::{check_gradient, random};

    fn divergence(first: &[f64], second: &[f64]) -> f64 {
        let log_sums = [first, second].map(|row| row_statistics(row, 0).log_sum);
        row_divergence(first, second, log_sums)
    }

    #[test]
    fn a_divergence_is_its_definition_and_backward_its_derivative() {
        let rows: Vec<Vec<f64>> =
            [3, 4].iter().map(|&seed| random(seed, 37).iter().map(|z| 2.0 * z + 9.0).collect()).collect();
        let probabilities = |row: &[f64]| -> Vec<f64> {
            let sum: f64 = row.iter().map(|z| z.exp()).sum();
            row.iter().map(|z| z.exp() / sum).collect()
        };
        let (p, q) = (probabilities(&rows[0]), probabilities(&rows[1]));
        let exact: f64 = p.iter().zip(&q).map(|(p, q)| p * (p / q).ln()).sum();
        assert!(exact > 0.1 && (divergence(&rows[0], &rows[1]) - exact).abs() < 1e-12);
        assert!(divergence(&rows[0], &rows[0]).abs() < 1e-15);
        let (mut first, mut second) = (rows[0].clone(), rows[1].clone());
        let log_sums = [&first, &second].map(|row| row_statistics(row, 0).log_sum);
        row_divergence_backward(&mut first, &mut second, log_sums, exact, -1.7);
        check_gradient("first", &rows[0], &first, |row| -1.7 * divergence(row, &rows[1]));
        check_gradient("second", &rows[1], &second, |row| -1.7 * divergence(&rows[0], row));
    }
}
