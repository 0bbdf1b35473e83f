//! Interquartile mean and mean of scores.

use super::Strata;

/// Returns the arithmetic mean; 0 without values.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// Returns the mean of strata's means, `1/K sum_k 1/N_k sum_n x_kn`.
pub fn mean_of_strata(scores: &Strata) -> f64 {
    mean(&scores.iter().map(|runs| mean(runs)).collect::<Vec<_>>())
}

/// Returns the interquartile mean of all scores, `1/(n - 2g) sum_{i=g+1}^{n-g} x_(i)` with
/// `g = floor(n/4)` and ascending `x_(i)`; 0 without scores.
///
/// This mean is less sensitive to outliers than the arithmetic mean, and uses more data than the
/// median (Agarwal et al. 2021, section 4.3). It equals a 25 % `scipy.stats.trim_mean`.
pub fn iqm(scores: &[f64]) -> f64 {
    let mut sorted = scores.to_vec();
    sorted.sort_by(f64::total_cmp);
    let cut = sorted.len() / 4;
    mean(&sorted[cut..sorted.len() - cut])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quarters_at_the_ends_do_not_count() {
        assert_eq!(iqm(&[]), 0.0);
        assert_eq!(iqm(&[0.7]), 0.7);
        // Three scores have no whole quarter to trim.
        assert_eq!(iqm(&[0.0, 0.5, 1.0]), 0.5);
        assert_eq!(iqm(&[100.0, 0.2, -100.0, 0.4]), mean(&[0.2, 0.4]));
        assert!((iqm(&[5.0, 1.0, 2.0, 3.0, 4.0]) - 3.0).abs() < 1e-12);
    }

    #[test]
    fn every_stratum_counts_the_same() {
        assert_eq!(mean_of_strata(&[vec![1.0; 9], vec![0.0]]), 0.5);
        assert_eq!(mean(&[[1.0; 9].as_slice(), &[0.0]].concat()), 0.9);
    }
}
