//! Student's confidence interval of a mean.

use statrs::distribution::{ContinuousCDF as _, StudentsT};

use super::{Interval, mean};

/// Returns the 95 % interval `mean +- t s / sqrt(n)`, where `s` is the standard deviation with
/// denominator `n - 1`, and `t` is Student's 0.975 quantile at `n - 1` degrees of freedom; `None`
/// for fewer than two values.
pub fn student(values: &[f64]) -> Option<Interval> {
    let n = values.len() as f64;
    let t = StudentsT::new(0.0, 1.0, n - 1.0).ok()?.inverse_cdf(0.975);
    let centre = mean(values);
    let variance = values.iter().map(|value| (value - centre).powi(2)).sum::<f64>() / (n - 1.0);
    let half = t * (variance / n).sqrt();
    Some(Interval { low: centre - half, high: centre + half })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_scipys() {
        // scipy.stats.t.ppf(0.975, n - 1)
        for (n, quantile) in
            [(2usize, 12.706_204_736_432_095), (3, 4.302_652_729_911_275), (5, 2.776_445_105_197_798_7)]
        {
            let values: Vec<f64> = (0..n).map(|index| (index * index) as f64).collect();
            let interval = student(&values).unwrap();
            let centre = mean(&values);
            let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
            let error = (squares / (n as f64 - 1.0) / n as f64).sqrt();
            let found = (interval.high - interval.low) / 2.0 / error;
            assert!((found - quantile).abs() < 1e-9, "{n}: {found} and {quantile}");
            // The normal quantile differs.
            assert!((found - 1.959_963_984_540_054).abs() > 0.5);
            assert!((f64::midpoint(interval.low, interval.high) - centre).abs() < 1e-12);
        }
    }

    #[test]
    fn one_value_has_no_interval_and_equal_ones_an_empty_one() {
        assert_eq!((student(&[]), student(&[0.5])), (None, None));
        assert_eq!(student(&[0.5, 0.5]), Some(Interval { low: 0.5, high: 0.5 }));
    }
}
