//! The image processor of Qwen2-VL and Qwen2.5-VL: sizes, patches and their order.

use super::resize::resize;
use super::{Image, VisionConfig};
use crate::Real;

/// Returns the height and width after resizing: multiples of `factor`, with `min_pixels` to
/// `max_pixels` pixels and about the same aspect ratio. Halves round to even.
///
/// # Errors
/// Returns the reason if the picture has no pixels, or one side is more than 200 times the other.
pub fn smart_resize(
    [height, width]: [usize; 2],
    factor: usize,
    [min_pixels, max_pixels]: [usize; 2],
) -> Result<[usize; 2], String> {
    let (long, short) = (height.max(width), height.min(width));
    if short == 0 {
        return Err("the picture has no pixels".to_owned());
    }
    if long > 200 * short {
        return Err(format!("{width} x {height} pixels: one side is more than 200 times the other"));
    }
    let (h, w, unit) = (height as f64, width as f64, factor as f64);
    let nearest = |side: f64| (side / unit).round_ties_even() as usize * factor;
    let [rounded_h, rounded_w] = [nearest(h), nearest(w)];
    let pixels = rounded_h * rounded_w;
    Ok(if pixels > max_pixels {
        let beta = (h * w / max_pixels as f64).sqrt();
        let within = |side: f64| factor.max((side / beta / unit).floor() as usize * factor);
        [within(h), within(w)]
    } else if pixels < min_pixels {
        let beta = (min_pixels as f64 / (h * w)).sqrt();
        let above = |side: f64| (side * beta / unit).ceil() as usize * factor;
        [above(h), above(w)]
    } else {
        [rounded_h, rounded_w]
    })
}

/// A resized picture, ready for the tower.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Prepared {
    /// Number of merged patches per column and per row.
    pub(crate) grid: [usize; 2],
    /// Pixel values, `[height, width, 3]`.
    pub(crate) levels: Vec<u8>,
}

impl Prepared {
    pub(crate) fn new(image: &Image, config: &VisionConfig) -> Result<Self, String> {
        let (size, factor) = ([image.height, image.width], config.factor());
        if image.rgb.len() != 3 * image.height * image.width {
            return Err(format!("{} bytes are not {} x {} pixels of RGB", image.rgb.len(), size[1], size[0]));
        }
        let settings = &config.image;
        let to = smart_resize(size, factor, [settings.min_pixels, settings.max_pixels])?;
        let [height, width] = to;
        // With an extreme ratio the shorter side stays one patch, so the pixels may exceed the
        // maximum.
        if height == 0 || width == 0 || height * width > 4 * settings.max_pixels.max(factor * factor) {
            return Err(format!(
                "{} x {} pixels cannot be resized to between {} and {} pixels",
                size[1], size[0], settings.min_pixels, settings.max_pixels
            ));
        }
        Ok(Self { grid: to.map(|side| side / factor), levels: resize(&image.rgb, size, to) })
    }

    pub(crate) fn tokens(&self) -> usize {
        self.grid[0] * self.grid[1]
    }

    /// Returns the normalised patches, `[patches, 3 x temporal x patch x patch]`, ordered by row
    /// and column of merged patches, then by row and column within each.
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

/// Returns row and column of every patch, in the order of [`Prepared::patches`].
pub(super) fn places([rows, columns]: [usize; 2], merge: usize) -> impl Iterator<Item = [usize; 2]> {
    (0..rows * columns * merge * merge).map(move |index| {
        let (group, inner) = (index / (merge * merge), index % (merge * merge));
        [group / columns * merge + inner / merge, group % columns * merge + inner % merge]
    })
}
