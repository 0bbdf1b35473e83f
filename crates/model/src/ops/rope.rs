//! Rotary position embedding in Hugging Face's half-split convention.

use std::ops::Range;

use super::Real;
use super::dispatch::{Loop, vectorised};
use crate::Rotary;

/// Cosines and sines of `position * frequency` per pair of a head, times the attention factor.
#[derive(Clone, Debug)]
pub(crate) struct RopeTable<T> {
    half: usize,
    rotary: Rotary,
    /// `[positions, 2, half]`: cosines, then sines.
    values: Vec<T>,
    /// Cosines and sines for each row of a micro-batch with images; empty without images.
    rows: Vec<T>,
}

impl<T: Real> RopeTable<T> {
    pub(crate) fn new(rotary: Rotary) -> Self {
        Self { half: rotary.frequencies.len(), rotary, values: Vec::new(), rows: Vec::new() }
    }

    pub(crate) fn extend_to(&mut self, positions: usize) {
        let Rotary { frequencies, attention_factor } = &self.rotary;
        for position in self.values.len() / (2 * self.half)..positions {
            let angles = frequencies.iter().map(|frequency| position as f64 * frequency);
            self.values.extend(angles.clone().map(|angle| T::from_f64(angle.cos() * attention_factor)));
            self.values.extend(angles.map(|angle| T::from_f64(angle.sin() * attention_factor)));
        }
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn values(&self) -> &[T] {
        &self.values
    }

    /// Sets the time, row and column of each row of a micro-batch. If `places` is empty, positions
    /// are token indices. `sections` has the number of rotary pairs for each of time, row and
    /// column (M-RoPE; Wang et al. (2024), "Qwen2-VL").
    pub(crate) fn set_places(&mut self, places: &[[u32; 3]], sections: [usize; 3]) {
        let (half, values) = (self.half, &self.values);
        self.rows.clear();
        self.rows.reserve(places.len() * 2 * half);
        let ends = [sections[0], sections[0] + sections[1], half];
        let starts = [0, ends[0], ends[1]];
        for place in places {
            for sines in [0, half] {
                for ((&at, start), end) in place.iter().zip(starts).zip(ends) {
                    let row = at as usize * 2 * half + sines;
                    self.rows.extend_from_slice(&values[row + start..row + end]);
                }
            }
        }
    }

    /// Rotates `rows` like [`RopeTable::rotate`]; the first row has position `depth`.
    pub(crate) fn rotate_segment(
        &self,
        x: &mut [T],
        stride: usize,
        heads: usize,
        (rows, depth): (&Range<usize>, usize),
        direction: Direction,
    ) {
        if self.rows.is_empty() {
            self.rotate(x, stride, heads, depth, direction);
        } else {
            rotate_rows(&self.rows[rows.start * 2 * self.half..], self.half, x, stride, heads, direction);
        }
    }

    /// Rotates the first `heads` heads of each row of `x` in place; row `r` has position
    /// `first + r`.
    ///
    /// Each pair `(i, i + half)` turns by its angle, or by the negative angle in the backward pass;
    /// both passes scale by the attention factor. Su et al. (2021), "RoFormer".
    pub(crate) fn rotate(
        &self,
        x: &mut [T],
        stride: usize,
        heads: usize,
        first: usize,
        direction: Direction,
    ) {
        rotate_rows(&self.values[first * 2 * self.half..], self.half, x, stride, heads, direction);
    }
}

/// Rotates each row of `x` by the row of `table` with the same index, which has `half` cosines,
/// then `half` sines.
pub(crate) fn rotate_rows<T: Real>(
    table: &[T],
    half: usize,
    x: &mut [T],
    stride: usize,
    heads: usize,
    direction: Direction,
) {
    struct Rows;

    impl<T: Real> Loop<(&[T], usize, &mut [T], usize, usize, T)> for Rows {
        type Output = ();
        #[inline(always)]
        fn run((table, half, x, stride, heads, sign): (&[T], usize, &mut [T], usize, usize, T)) {
            for (row, table) in x.chunks_exact_mut(stride).zip(table.chunks_exact(2 * half)) {
                let (cos, sin) = table.split_at(half);
                for head in row[..heads * 2 * half].chunks_exact_mut(2 * half) {
                    let (left, right) = head.split_at_mut(half);
                    for (((left, right), &cos), &sin) in left.iter_mut().zip(right).zip(cos).zip(sin) {
                        let (a, b, sin) = (*left, *right, sin * sign);
                        *left = a * cos - b * sin;
                        *right = b * cos + a * sin;
                    }
                }
            }
        }
    }

    let sign = match direction {
        Direction::Forward => T::ONE,
        Direction::Backward => -T::ONE,
    };
    vectorised(Rows, (table, half, x, stride, heads, sign));
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_gradient, random};

    #[test]
    fn backward_is_the_derivative() {
        let (rows, stride) = (5, 18);
        let frequencies = (0..3).map(|i| 100f64.powf(-f64::from(i) / 3.0)).collect();
        let mut table = RopeTable::<f64>::new(Rotary { frequencies, attention_factor: 1.25 });
        table.extend_to(2);
        table.extend_to(rows);
        let (x, d_y) = (random(1, rows * stride), random(2, rows * stride));
        let output = |x: &[f64]| {
            let mut y = x.to_vec();
            table.rotate(&mut y, stride, 2, 0, Direction::Forward);
            y
        };
        let y = output(&x);
        let scaled: Vec<f64> = x[..12].iter().map(|x| 1.25 * x).collect();
        assert_eq!(y[..12], scaled, "position 0 does not turn");
        assert_eq!(y[stride + 12..2 * stride], x[stride + 12..2 * stride], "the third head does not turn");
        let angle = 3.0 * 100f64.powf(-2.0 / 6.0);
        let (a, b) = (x[3 * stride + 7], x[3 * stride + 10]);
        assert!((y[3 * stride + 7] - 1.25 * (a * angle.cos() - b * angle.sin())).abs() < 1e-14);
        let mut d_x = d_y.clone();
        table.rotate(&mut d_x, stride, 2, 0, Direction::Backward);
        check_gradient("x", &x, &d_x, |x| output(x).iter().zip(&d_y).map(|(y, d)| y * d).sum());
        let mut later = x[2 * stride..].to_vec();
        table.rotate(&mut later, stride, 2, 2, Direction::Forward);
        assert_eq!(later, y[2 * stride..]);
    }
}
