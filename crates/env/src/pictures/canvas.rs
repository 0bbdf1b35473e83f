//! Images in memory.

/// RGB colour.
pub type Color = [u8; 3];

/// Image with eight bits per channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    width: usize,
    rgb: Vec<u8>,
}

impl Picture {
    /// Creates an image of one colour.
    pub fn new(width: usize, height: usize, color: Color) -> Self {
        Self { width, rgb: color.repeat(width * height) }
    }

    /// Creates an image from RGB bytes, which must be whole rows of `width` pixels.
    pub(crate) fn from_rgb(width: usize, rgb: Vec<u8>) -> Option<Self> {
        (width > 0 && !rgb.is_empty() && rgb.len().is_multiple_of(3 * width)).then_some(Self { width, rgb })
    }

    /// Returns the width in pixels.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the height in pixels.
    pub fn height(&self) -> usize {
        (self.rgb.len() / 3).checked_div(self.width).unwrap_or_default()
    }

    /// Returns the RGB bytes, row by row.
    pub fn rgb(&self) -> &[u8] {
        &self.rgb
    }

    /// Returns the colour of a pixel inside the image.
    pub fn pixel(&self, x: usize, y: usize) -> Color {
        let at = 3 * (y * self.width + x);
        [self.rgb[at], self.rgb[at + 1], self.rgb[at + 2]]
    }

    /// Blends a colour into a pixel with the weight `share` (0 to 1). Ignores pixels outside the
    /// image.
    pub fn blend(&mut self, x: usize, y: usize, color: Color, share: f32) {
        if x >= self.width || y >= self.height() {
            return;
        }
        let at = 3 * (y * self.width + x);
        let share = share.clamp(0.0, 1.0);
        for (byte, new) in self.rgb[at..at + 3].iter_mut().zip(color) {
            let mixed = f32::from(*byte) + (f32::from(new) - f32::from(*byte)) * share;
            *byte = mixed.round() as u8;
        }
    }

    /// Copies another image to (`x`, `y`), clipped to this image.
    pub fn paste(&mut self, other: &Self, x: usize, y: usize) {
        let columns = other.width.min(self.width.saturating_sub(x));
        let rows = other.height().min(self.height().saturating_sub(y));
        for row in 0..rows {
            let to = 3 * ((y + row) * self.width + x);
            let from = 3 * row * other.width;
            self.rgb[to..to + 3 * columns].copy_from_slice(&other.rgb[from..from + 3 * columns]);
        }
    }

    /// Fills a shape inside a box, with an antialiased edge. `distance` is the signed distance from
    /// a point to the shape in pixels, negative inside.
    pub fn fill(
        &mut self,
        (left, top, right, bottom): (usize, usize, usize, usize),
        color: Color,
        distance: impl Fn(f32, f32) -> f32,
    ) {
        for y in top..bottom.min(self.height()) {
            for x in left..right.min(self.width) {
                let share = 0.5 - distance(x as f32 + 0.5, y as f32 + 0.5);
                if share > 0.0 {
                    self.blend(x, y, color, share);
                }
            }
        }
    }

    /// Scales the image. Each new pixel is the average of the old pixels that it covers.
    pub fn scaled(&self, width: usize, height: usize) -> Self {
        let mut rgb = Vec::with_capacity(3 * width * height);
        let span = |index: usize, count: usize, all: usize| {
            let start = index * all / count;
            (start, ((index + 1) * all / count).max(start + 1))
        };
        for row in 0..height {
            let (top, bottom) = span(row, height, self.height());
            for column in 0..width {
                let (left, right) = span(column, width, self.width);
                let mut sums = [0usize; 3];
                for y in top..bottom {
                    for x in left..right {
                        for (sum, byte) in sums.iter_mut().zip(self.pixel(x, y)) {
                            *sum += usize::from(byte);
                        }
                    }
                }
                let count = (bottom - top) * (right - left);
                rgb.extend(sums.map(|sum| (sum / count) as u8));
            }
        }
        Self { width, rgb }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pasting_keeps_inside_and_shapes_have_soft_edges() {
        let mut picture = Picture::new(4, 3, [0, 0, 0]);
        picture.paste(&Picture::new(2, 2, [9, 8, 7]), 3, 2);
        assert_eq!((picture.pixel(3, 2), picture.pixel(2, 2)), ([9, 8, 7], [0, 0, 0]));
        picture.fill((0, 0, 9, 9), [200, 200, 200], |x, _| x - 1.75);
        assert_eq!([0, 1, 2].map(|x| picture.pixel(x, 0)[0]), [200, 150, 0]);
        assert_eq!(Picture::from_rgb(2, vec![0; 9]), None);
        assert_eq!(picture.scaled(2, 1).pixel(0, 0)[0], 175);
        assert_eq!(picture.scaled(8, 6).height(), 6);
    }
}
