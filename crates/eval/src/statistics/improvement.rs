//! Probability of improvement.

use super::{Strata, mean};

/// Returns the probability that a run of X beats one of Y on a random stratum:
/// `1/K sum_k 1/(N_k M_k) sum_{i,j} S(x_ki, y_kj)`, with `S = 1` if `x > y`, `1/2` if equal, else 0
/// (Agarwal et al. 2021, section 4.3; the inner sum is Mann and Whitney's U). 0.5 means no
/// difference. Returns `None` if a stratum is empty or missing.
pub fn probability_of_improvement(x: &Strata, y: &Strata) -> Option<f64> {
    if x.is_empty() || x.len() != y.len() || x.iter().chain(y).any(Vec::is_empty) {
        return None;
    }
    let of_stratum = |(x, y): (&Vec<f64>, &Vec<f64>)| {
        let mut sum = 0.0;
        for a in x {
            for b in y {
                sum += if a > b { 1.0 } else { 0.5 * f64::from(u8::from(a == b)) };
            }
        }
        sum / (x.len() * y.len()) as f64
    };
    Some(mean(&x.iter().zip(y).map(of_stratum).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_is_a_half_and_both_directions_add_to_one() {
        let x = [vec![0.1, 0.9, 0.5], vec![0.3, 0.3]];
        let y = [vec![0.5, 0.2], vec![0.3, 0.1]];
        assert_eq!(probability_of_improvement(&x, &x), Some(0.5));
        let (one, other) =
            (probability_of_improvement(&x, &y).unwrap(), probability_of_improvement(&y, &x).unwrap());
        assert!((one + other - 1.0).abs() < 1e-12);
        // By hand: (0 + 2 + 1.5) / 6 and (1.5 + 1.5) / 4.
        assert!((one - f64::midpoint(3.5 / 6.0, 0.75)).abs() < 1e-12, "{one}");
    }

    #[test]
    fn strata_that_do_not_match_have_none() {
        assert_eq!(probability_of_improvement(&[vec![1.0]], &[vec![1.0], vec![2.0]]), None);
        assert_eq!(probability_of_improvement(&[vec![]], &[vec![1.0]]), None);
        assert_eq!(probability_of_improvement(&[], &[]), None);
    }
}
