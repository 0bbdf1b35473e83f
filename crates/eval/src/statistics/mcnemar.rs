//! McNemar's exact test of two runs on the same tasks.

use serde::{Deserialize, Serialize};

/// Test result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct McNemar {
    /// Number of tasks that only the first run solved.
    pub only_first: usize,
    /// Number of tasks that only the second run solved.
    pub only_second: usize,
    /// Two-sided p-value.
    pub p: f64,
}

/// Tests whether two runs are equally likely to be the only one that solves a task.
///
/// If the runs are equally likely, and `n = b + c` tasks were solved by exactly one run, the number
/// `b` that the first run solved is binomial with probability 1/2:
/// `p = min(1, 2 sum_{i=0}^{min(b,c)} C(n,i) 2^-n)` (McNemar 1947; exact form: Fagerland, Lydersen
/// and Laake 2013).
pub fn mcnemar(pairs: &[(bool, bool)]) -> McNemar {
    let only_first = pairs.iter().filter(|(first, second)| *first && !second).count();
    let only_second = pairs.iter().filter(|(first, second)| !first && *second).count();
    let tail = binomial_half_tail(only_first.min(only_second), only_first + only_second);
    McNemar { only_first, only_second, p: (2.0 * tail).min(1.0) }
}

/// Returns `P(X <= k)` for `X` binomial with `n` trials of probability 1/2.
fn binomial_half_tail(k: usize, n: usize) -> f64 {
    let mut log_term = -(n as f64) * std::f64::consts::LN_2;
    let mut sum = 0.0;
    for i in 0..=k {
        sum += log_term.exp();
        log_term += ((n - i) as f64 / (i + 1) as f64).ln();
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(both: usize, first: usize, second: usize, none: usize) -> Vec<(bool, bool)> {
        [(both, (true, true)), (first, (true, false)), (second, (false, true)), (none, (false, false))]
            .into_iter()
            .flat_map(|(count, pair)| std::iter::repeat_n(pair, count))
            .collect()
    }

    #[test]
    fn only_tasks_that_differ_count() {
        let found = mcnemar(&pairs(40, 6, 0, 13));
        assert_eq!((found.only_first, found.only_second), (6, 0));
        assert!((found.p - 2.0 / 64.0).abs() < 1e-12);
        assert_eq!(mcnemar(&pairs(0, 6, 0, 0)).p, found.p);
        assert_eq!(mcnemar(&pairs(1, 0, 6, 0)).p, found.p);
    }

    #[test]
    fn runs_that_agree_or_balance_do_not_differ() {
        assert_eq!(mcnemar(&[]).p, 1.0);
        assert_eq!(mcnemar(&pairs(3, 0, 0, 2)).p, 1.0);
        assert_eq!(mcnemar(&pairs(3, 5, 5, 2)).p, 1.0);
    }
}
