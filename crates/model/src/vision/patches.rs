use super::{Prepared, VisionConfig};
use crate::Real;

impl Prepared {
    /// Returns the normalized patches, `[patches, 3 x temporal x patch x patch]`, ordered so that
    /// the patches merged into one token are adjacent.
    pub(crate) fn patches<T: Real>(&self, config: &VisionConfig) -> Vec<T> {
        let (side, merge) = (config.patch_size, config.spatial_merge_size);
        let stride = self.grid[1] * config.factor();
        let settings = &config.image;
        let table: Vec<[T; 256]> = (0..3)
            .map(|channel| {
                let (mean, std) = (settings.mean[channel], settings.std[channel]);
                std::array::from_fn(|level| T::from_f64((level as f64 / 255.0 - mean) / std))
            })
            .collect();
        let mut patches = Vec::with_capacity(self.tokens() * config.merged() * config.patch_len());
        for [row, column] in places(self.grid, merge) {
            for (channel, table) in table.iter().enumerate() {
                for _ in 0..config.temporal_patch_size {
                    for y in row * side..(row + 1) * side {
                        let line = &self.levels[3 * (y * stride + column * side)..][..3 * side];
                        patches.extend(
                            line.iter().skip(channel).step_by(3).map(|&level| table[usize::from(level)]),
                        );
                    }
                }
            }
        }
        patches
    }
}

/// Returns each patch's row and column, in the order of [`Prepared::patches`].
pub(super) fn places([rows, columns]: [usize; 2], merge: usize) -> impl Iterator<Item = [usize; 2]> {
    (0..rows * columns * merge * merge).map(move |index| {
        let (group, inner) = (index / (merge * merge), index % (merge * merge));
        [group / columns * merge + inner / merge, group % columns * merge + inner % merge]
    })
}
