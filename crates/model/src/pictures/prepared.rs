//! Images resized for Qwen2-VL and Qwen2.5-VL.

use super::resize::resize;
use super::{Image, VisionConfig};

/// Returns the height and width to resize an image to: multiples of `factor` with `min_pixels` to
/// `max_pixels` pixels and nearly the same aspect ratio. Halves round to even.
///
/// # Errors
/// Fails if the image has no pixels or an aspect ratio above 200.
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

/// An image at the tower's size.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Prepared {
    /// Merged patches per column and per row.
    pub(crate) grid: [usize; 2],
    /// `[height, width, 3]`.
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
        // At extreme ratios, the shorter side stays one patch, so pixels may exceed the maximum.
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
}
