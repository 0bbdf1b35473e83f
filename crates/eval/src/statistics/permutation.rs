//! Paired permutation test of two methods on the same tasks.

use serde::{Deserialize, Serialize};
use turnwise_core::{Purpose, Seed};

use super::mean;

/// Maximum number of nonzero differences for which all combinations of signs are tried.
const EXACT: usize = 16;

/// Test result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairedTest {
    /// Mean difference over all tasks.
    pub difference: f64,
    /// Two-sided p-value.
    pub p: f64,
    /// Whether all combinations of signs were tried, so that `p` is exact.
    pub exact: bool,
}

/// Tests `d_t`, the difference of two methods' mean success on task `t` over their seeds.
///
/// If the methods are exchangeable, both signs of each `d_t` are equally likely. `p` is the share
/// of all sign combinations `s` whose `T = |mean_t s_t d_t|` is at least `T_0`, the value for the
/// observed signs (Pitman 1937). With up to 16 nonzero differences, all `2^n` combinations are
/// tried; with more, `resamples` random combinations are tried, and
/// `p = (1 + #{T >= T_0}) / (1 + resamples)` (Phipson and Smyth 2010). `None` without tasks.
///
/// The result generalizes to other tasks, not to other seeds.
pub fn paired_permutation(differences: &[f64], resamples: usize, seed: u64) -> Option<PairedTest> {
    if differences.is_empty() {
        return None;
    }
    let differing: Vec<f64> = differences.iter().copied().filter(|difference| *difference != 0.0).collect();
    let observed = differing.iter().sum::<f64>().abs();
    // Sums in another order differ in their last bits.
    let threshold = observed - 1e-12 * differing.iter().map(|difference| difference.abs()).sum::<f64>();
    let reaches = |positive: &mut dyn FnMut(usize) -> bool| {
        let signed = differing.iter().enumerate();
        let sum: f64 = signed.map(|(index, value)| if positive(index) { *value } else { -value }).sum();
        sum.abs() >= threshold
    };
    let exact = differing.len() <= EXACT;
    let p = if exact {
        let all = 1_u32 << differing.len();
        let count = (0..all).filter(|signs| reaches(&mut |index| signs >> index & 1 == 0)).count();
        count as f64 / f64::from(all)
    } else {
        let count = (0..resamples)
            .filter(|&resample| {
                let mut rng = Seed::derive(seed, Purpose::Resampling, &[resample as u64, 1]).rng();
                let (mut bits, mut left) = (0, 0);
                reaches(&mut |_| {
                    if left == 0 {
                        (bits, left) = (rng.bits(), 64);
                    }
                    let positive = bits & 1 == 0;
                    (bits, left) = (bits >> 1, left - 1);
                    positive
                })
            })
            .count();
        (1 + count) as f64 / (1 + resamples) as f64
    };
    Some(PairedTest { difference: mean(differences), p, exact })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_tasks_are_counted_out() {
        // All five have one sign: 2 of 32 signs are as extreme.
        let found = paired_permutation(&[1.0, 1.0, 0.5, 1.0, 0.25], 100, 0).unwrap();
        assert!(found.exact && (found.p - 2.0 / 32.0).abs() < 1e-12);
        assert_eq!(found.difference, 0.75);
        let with_ties = paired_permutation(&[1.0, 1.0, 0.5, 1.0, 0.25, 0.0, 0.0, 0.0], 100, 0).unwrap();
        assert_eq!((with_ties.p, with_ties.exact), (found.p, true));
        assert_eq!(paired_permutation(&[0.0, 0.0], 100, 0).unwrap().p, 1.0);
        assert_eq!(paired_permutation(&[], 100, 0), None);
    }

    #[test]
    fn many_tasks_are_drawn_and_agree_with_the_count() {
        // 15 of 20 positive: the sign test gives P(|X - 10| >= 5) = 0.041389.
        let differences: Vec<f64> = (0..20).map(|task| if task < 15 { 1.0 } else { -1.0 }).collect();
        let found = paired_permutation(&differences, 50_000, 1).unwrap();
        assert!(!found.exact && (found.p - 0.041389).abs() < 0.003, "{found:?}");
        assert_eq!(found, paired_permutation(&differences, 50_000, 1).unwrap());
        let fewer = paired_permutation(&differences[..19], 50_000, 1).unwrap();
        assert!(fewer.p < found.p, "one opposite less is further from chance: {fewer:?}");
    }
}
