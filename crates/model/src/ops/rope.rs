//! Rotary position embedding in Hugging Face's half-split convention.

use super::Real;
use super::dispatch::{Loop, vectorised};

/// Cosines and sines of `position * theta^(-2 i / head_dim)`, `i < head_dim / 2`.
#[derive(Clone, Debug)]
pub(crate) struct RopeTable<T> {
    half: usize,
    theta: f64,
    /// `[positions, 2, half]`: cosines, then sines.
    values: Vec<T>,
}

impl<T: Real> RopeTable<T> {
    /// An empty table.
    pub(crate) fn new(head_dim: usize, theta: f64) -> Self {
        Self { half: head_dim / 2, theta, values: Vec::new() }
    }

    /// Makes sure that the first `positions` are there.
    pub(crate) fn extend_to(&mut self, positions: usize) {
        for position in self.values.len() / (2 * self.half)..positions {
            let angle = |i: usize| position as f64 * self.theta.powf(-(i as f64) / self.half as f64);
            self.values.extend((0..self.half).map(|i| T::from_f64(angle(i).cos())));
            self.values.extend((0..self.half).map(|i| T::from_f64(angle(i).sin())));
        }
    }

    /// Turns the first `heads` heads of each row of `x` in place; row `r` stands at position `r`.
    ///
    /// Pair `(i, i + half)` of a head turns by its angle; backward is the turn by the negative angle.
    /// Su et al. (2021), "RoFormer".
    pub(crate) fn rotate(&self, x: &mut [T], stride: usize, heads: usize, direction: Direction) {
        struct Rows;

        impl<T: Real> Loop<(&RopeTable<T>, &mut [T], usize, usize, T)> for Rows {
            type Output = ();
            #[inline(always)]
            fn run((table, x, stride, heads, sign): (&RopeTable<T>, &mut [T], usize, usize, T)) {
                let half = table.half;
                for (row, table) in x.chunks_exact_mut(stride).zip(table.values.chunks_exact(2 * half)) {
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
        vectorised(Rows, (self, x, stride, heads, sign));
    }
}

/// Whether values are turned or their derivatives turned back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// By the angle.
    Forward,
    /// By the negative angle.
    Backward,
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_gradient, random};
    use super::*;

    #[test]
    fn backward_is_the_derivative() {
        // Rows of 3 heads of 6, of which 2 turn.
        let (rows, stride) = (5, 18);
        let mut table = RopeTable::<f64>::new(6, 100.0);
        table.extend_to(2);
        table.extend_to(rows);
        let (x, d_y) = (random(1, rows * stride), random(2, rows * stride));
        let output = |x: &[f64]| {
            let mut y = x.to_vec();
            table.rotate(&mut y, stride, 2, Direction::Forward);
            y
        };
        let y = output(&x);
        assert_eq!(y[..stride], x[..stride], "position 0 does not turn");
        assert_eq!(y[stride + 12..2 * stride], x[stride + 12..2 * stride], "the third head does not turn");
        let angle = 3.0 * 100f64.powf(-2.0 / 6.0);
        let (a, b) = (x[3 * stride + 7], x[3 * stride + 10]);
        assert!((y[3 * stride + 7] - (a * angle.cos() - b * angle.sin())).abs() < 1e-14);
        let mut d_x = d_y.clone();
        table.rotate(&mut d_x, stride, 2, Direction::Backward);
        check_gradient("x", &x, &d_x, |x| output(x).iter().zip(&d_y).map(|(y, d)| y * d).sum());
    }
}
