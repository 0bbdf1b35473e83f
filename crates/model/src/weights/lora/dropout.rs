//! Dropout whose mask is computed from each entry's coordinates, so no generator state is kept.

use crate::Real;

/// Dropout mask for the adapter inputs of one pass.
///
/// The mask depends only on the key and on the entry's sequence, position, layer, module and
/// column. Recomputation, micro-batches and lanes do not change the mask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Dropout {
    key: u64,
    /// Entries are dropped if their 32 random bits are below this threshold.
    threshold: u64,
    /// `1 / (1 - probability)`, which preserves the mean.
    scale: f64,
}

impl Dropout {
    /// Returns the mask for a random `key`, or `None` if nothing is dropped.
    pub(crate) fn new(key: u64, probability: f64) -> Option<Self> {
        let threshold = (probability * 2f64.powi(32)) as u64;
        (threshold > 0).then(|| Self { key, threshold, scale: 1.0 / (1.0 - probability) })
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn key(&self) -> u64 {
        self.key
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn threshold(&self) -> u64 {
        self.threshold
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn scale(&self) -> f64 {
        self.scale
    }

    /// Computes `to = mask * x / (1 - probability)` for one row. `coordinates` are sequence, layer,
    /// module and position.
    pub(crate) fn apply<T: Real>(&self, coordinates: [u64; 4], x: &[T], to: &mut [T]) {
        let row = coordinates.into_iter().fold(self.key, |state, coordinate| mix(state ^ mix(coordinate)));
        let scale = T::from_f64(self.scale);
        let pairs = x.chunks(2).zip(to.chunks_mut(2));
        for (index, (x, to)) in pairs.enumerate() {
            let bits = mix(row.wrapping_add(index as u64));
            for ((to, &x), bits) in to.iter_mut().zip(x).zip([bits & 0xffff_ffff, bits >> 32]) {
                *to = if bits < self.threshold { T::ZERO } else { x * scale };
            }
        }
    }
}

/// Applies one step of SplitMix64 (Steele, Lea and Flood 2014), a bijection with random-looking
/// output.
fn mix(counter: u64) -> u64 {
    let z = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(dropout: &Dropout, coordinates: [u64; 4], width: usize) -> Vec<f64> {
        let mut to = vec![9.0; width];
        dropout.apply(coordinates, &vec![1.0; width], &mut to);
        to
    }

    #[test]
    fn entries_are_dropped_as_often_as_asked_and_the_mean_stays() {
        for probability in [0.1, 0.5, 0.9] {
            let dropout = Dropout::new(7, probability).unwrap();
            let found: Vec<f64> = (0..100).flat_map(|row| mask(&dropout, [row, 1, 2, 3], 999)).collect();
            let dropped = found.iter().filter(|&&value| value == 0.0).count() as f64 / found.len() as f64;
            assert!((dropped - probability).abs() < 0.01, "{dropped}");
            assert!((found.iter().sum::<f64>() / found.len() as f64 - 1.0).abs() < 0.05);
        }
        assert_eq!(Dropout::new(7, 0.0), None);
    }

    #[test]
    fn every_coordinate_counts_and_nothing_else() {
        let dropout = Dropout::new(7, 0.5).unwrap();
        let base = mask(&dropout, [4, 3, 2, 1], 64);
        assert_eq!(base, mask(&dropout, [4, 3, 2, 1], 64));
        assert_eq!(base[..33], mask(&dropout, [4, 3, 2, 1], 33));
        for other in [[5, 3, 2, 1], [4, 4, 2, 1], [4, 3, 1, 1], [4, 3, 2, 2], [3, 4, 2, 1]] {
            assert_ne!(base, mask(&dropout, other, 64), "{other:?}");
        }
        assert_ne!(base, mask(&Dropout::new(8, 0.5).unwrap(), [4, 3, 2, 1], 64));
        let next = mask(&dropout, [4, 3, 2, 2], 4096);
        let same = mask(&dropout, [4, 3, 2, 1], 4096).iter().zip(&next).filter(|(a, b)| a == b).count();
        assert!((1900..2200).contains(&same), "{same}");
    }

    #[test]
    fn the_mask_is_pinned() {
        let found = mask(&Dropout::new(1, 0.5).unwrap(), [0, 1, 2, 3], 16);
        let bits: String = found.iter().map(|&value| if value == 0.0 { '0' } else { '1' }).collect();
        assert_eq!(bits, PINNED);
    }
    const PINNED: &str = "0000000110001111";
}
