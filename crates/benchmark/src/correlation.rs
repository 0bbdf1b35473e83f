//! Correlations of weighted pairs, for a bootstrap that resamples tasks.

/// Weighted sums over pairs; sums of disjoint sets can be added.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// Total weight.
    pub n: f64,
    /// Sum of `x`.
    pub x: f64,
    /// Sum of `y`.
    pub y: f64,
    /// Sum of `x^2`.
    pub xx: f64,
    /// Sum of `y^2`.
    pub yy: f64,
    /// Sum of `x y`.
    pub xy: f64,
}

/// Variances below this fraction of the mean square count as zero.
const ROUNDING: f64 = 1e-12;

impl Sums {
    /// Adds a weighted pair.
    pub fn add(&mut self, x: f64, y: f64, weight: f64) {
        let pair = Self { n: 1.0, x, y, xx: x * x, yy: y * y, xy: x * y };
        self.add_sums(&pair, weight);
    }

    /// Adds the sums of `other`, multiplied by a weight.
    pub(crate) fn add_sums(&mut self, other: &Self, weight: f64) {
        self.n += weight * other.n;
        self.x += weight * other.x;
        self.y += weight * other.y;
        self.xx += weight * other.xx;
        self.yy += weight * other.yy;
        self.xy += weight * other.xy;
    }

    /// Returns Pearson's correlation; `None` if `x` or `y` is constant.
    pub fn pearson(&self) -> Option<f64> {
        let (xx, yy, xy) = self.central()?;
        (xx > 0.0 && yy > 0.0).then(|| (xy / (xx * yy).sqrt()).clamp(-1.0, 1.0))
    }

    /// Returns the regression slope of `y` on `x`; `None` if `x` is constant.
    pub fn slope(&self) -> Option<f64> {
        let (xx, _, xy) = self.central()?;
        (xx > 0.0).then(|| xy / xx)
    }

    fn central(&self) -> Option<(f64, f64, f64)> {
        if self.n <= 0.0 {
            return None;
        }
        let (x, y) = (self.x / self.n, self.y / self.n);
        let variance = |squares: f64, mean: f64| {
            let square = squares / self.n;
            let variance = square - mean * mean;
            if variance > ROUNDING * square { variance } else { 0.0 }
        };
        Some((variance(self.xx, x), variance(self.yy, y), self.xy / self.n - x * y))
    }
}

/// Sort order of a list of values, from which ranks for any weights are computed.
#[derive(Clone, Debug)]
pub struct Ranking {
    /// Indices of the values in ascending order; those of equal values share a list.
    ties: Vec<Vec<usize>>,
    len: usize,
}

impl Ranking {
    /// Ranks finite values.
    pub fn new(values: &[f64]) -> Self {
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
        let ties = order.chunk_by(|&a, &b| values[a] == values[b]).map(<[usize]>::to_vec).collect();
        Self { ties, len: values.len() }
    }

    /// Returns ranks from 1, as if each value occurred `weight` times; ties get their mean rank.
    pub fn ranks(&self, weight: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut ranks = vec![0.0; self.len];
        let mut before = 0.0;
        for tied in &self.ties {
            let count: f64 = tied.iter().map(|&index| weight(index)).sum();
            for &index in tied {
                ranks[index] = before + f64::midpoint(count, 1.0);
            }
            before += count;
        }
        ranks
    }
}

/// Returns Spearman's correlation of weighted pairs; `None` if `x` or `y` is constant.
pub fn spearman(x: &Ranking, y: &Ranking, weight: impl Fn(usize) -> f64) -> Option<f64> {
    let (x, y) = (x.ranks(&weight), y.ranks(&weight));
    let mut sums = Sums::default();
    for (index, (x, y)) in x.iter().zip(&y).enumerate() {
        sums.add(*x, *y, weight(index));
    }
    sums.pearson()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const X: [f64; 6] = [1.0, 2.0, 3.0, 4.0, 7.0, 2.0];
    const Y: [f64; 6] = [2.0, 1.5, 4.0, 3.0, 9.5, 1.5];

    fn sums(weights: [f64; 6]) -> Sums {
        let mut sums = Sums::default();
        for ((x, y), weight) in X.iter().zip(Y).zip(weights) {
            sums.add(*x, y, weight);
        }
        sums
    }

    /// Golden values of `scipy.stats`, for lists in which each value is repeated `weight` times
    /// (`tests/golden/golden_benchmark.py`).
    #[test]
    fn correlations_are_scipys() {
        let close =
            |found: f64, expected: f64| assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        let ranking = (Ranking::new(&X), Ranking::new(&Y));
        let rho = |weights: [f64; 6]| spearman(&ranking.0, &ranking.1, |index| weights[index]).unwrap();
        let [plain, repeated] = [[1.0; 6], [2.0, 0.0, 1.0, 3.0, 1.0, 1.0]];
        let golden: Value = serde_json::from_str(include_str!("../tests/golden/benchmark.json")).unwrap();
        let golden: Vec<f64> = serde_json::from_value(golden["correlations"].clone()).unwrap();
        close(sums(plain).pearson().unwrap(), golden[0]);
        close(rho(plain), golden[1]);
        close(sums(plain).slope().unwrap(), golden[2]);
        close(sums(repeated).pearson().unwrap(), golden[3]);
        close(rho(repeated), golden[4]);
        close(sums(repeated).slope().unwrap(), golden[5]);
        assert!((rho(plain) - rho(repeated)).abs() > 1e-3 && (rho(plain) - golden[0]).abs() > 1e-3);
    }

    #[test]
    fn what_does_not_vary_has_no_correlation() {
        let mut flat = Sums::default();
        for y in Y {
            flat.add(0.1 + 0.2, y, 1.0);
        }
        assert_eq!((flat.pearson(), flat.slope(), Sums::default().pearson()), (None, None, None));
        let constant = Ranking::new(&[5.0; 6]);
        assert_eq!(spearman(&constant, &Ranking::new(&Y), |_| 1.0), None);
    }
}
