//! Pearson's correlation.

use super::mean;

/// Returns `r = sum (x - mean x)(y - mean y) / sqrt(sum (x - mean x)^2 sum (y - mean y)^2)` over
/// the length of the shorter list; `None` if there are fewer than two pairs or a list is constant.
pub fn pearson(x: &[f64], y: &[f64]) -> Option<f64> {
    let count = x.len().min(y.len());
    let (x, y) = (&x[..count], &y[..count]);
    let (mean_x, mean_y) = (mean(x), mean(y));
    let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
    for (x, y) in x.iter().zip(y) {
        let (x, y) = (x - mean_x, y - mean_y);
        xy += x * y;
        xx += x * x;
        yy += y * y;
    }
    (count > 1 && xx > 0.0 && yy > 0.0).then(|| (xy / (xx.sqrt() * yy.sqrt())).clamp(-1.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `scipy.stats.pearsonr([1, 2, 3, 4, 7], [2.0, 1.5, 4.0, 3.0, 9.5]).statistic`.
    #[test]
    fn equals_scipys() {
        let (x, y) = ([1.0, 2.0, 3.0, 4.0, 7.0], [2.0, 1.5, 4.0, 3.0, 9.5]);
        let found = pearson(&x, &y).unwrap_or_default();
        assert!((found - 0.9271301725751865).abs() < 1e-12, "{found}");
        let turned = y.map(|value| -value);
        assert_eq!(pearson(&x, &turned), Some(-found));
        assert_eq!((pearson(&x, &[1.0; 5]), pearson(&[1.0], &[2.0])), (None, None));
    }
}
