use std::cell::RefCell;
use std::ops::Range;

use super::product::{DEPTH, Kernel, Multiplier, ROWS};
use super::tiles::{Operand, PANEL, Panels, STEP, Side};

/// A weight matrix `[columns, depth]`, packed once for many products `x W^T`, in blocks along the
/// depth.
#[derive(Debug)]
pub(crate) struct PackedRight {
    columns: usize,
    depth: usize,
    blocks: Vec<(Range<usize>, Panels)>,
}

thread_local! {
    static LEFT: RefCell<Panels> = const { RefCell::new(Panels::new()) };
}

impl PackedRight {
    pub(crate) fn bytes(columns: usize, depth: usize) -> usize {
        columns.next_multiple_of(PANEL) * depth.next_multiple_of(STEP) * 2
    }

    /// Rounds and packs a row-major matrix.
    ///
    /// # Panics
    /// Panics if the CPU has no bf16 instructions, which is impossible if the caller has a
    /// [`Kernel`].
    pub(crate) fn new(weights: &[f32], depth: usize) -> Self {
        let columns = weights.len() / depth;
        let from = Operand { data: weights, outer: columns, depth, outer_stride: depth, depth_stride: 1 };
        let block = depth.div_ceil(depth.div_ceil(DEPTH)).next_multiple_of(STEP);
        let blocks = (0..depth).step_by(block).map(|start| {
            let range = start..depth.min(start + block);
            let mut panels = Panels::new();
            panels.pack(Side::Right, from, 0..columns, range.clone());
            (range, panels)
        });
        Self { columns, depth, blocks: blocks.collect() }
    }

    /// Computes `to += x W^T` from the first `depth` columns of `x`, `[rows, stride]`. Columns of
    /// `to`, `[rows, to_stride]`, beyond the result are unchanged.
    ///
    /// A row's sums do not depend on the other rows or their number.
    pub(crate) fn add_product(
        &self,
        kernel: Kernel,
        (x, stride): (&[f32], usize),
        (to, to_stride): (&mut [f32], usize),
    ) {
        let rows = x.len() / stride;
        let left = Operand { data: x, outer: rows, depth: self.depth, outer_stride: stride, depth_stride: 1 };
        let columns = self.columns.min(to_stride);
        let mut multiplier = Multiplier::new(kernel);
        LEFT.with_borrow_mut(|packed| {
            for (range, panels) in &self.blocks {
                for top in (0..rows).step_by(ROWS) {
                    let bottom = rows.min(top + ROWS);
                    packed.pack(Side::Left, left, top..bottom, range.clone());
                    // A panel of weights stays in the L1 cache for all rows.
                    for (index, column) in (0..columns).step_by(PANEL).enumerate() {
                        let width = PANEL.min(columns - column);
                        for (panel, row) in (top..bottom).step_by(PANEL).enumerate() {
                            // Summing from zero keeps rounding independent of the number of rows.
                            let count = PANEL.min(bottom - row);
                            let sums = multiplier.sums(packed.panel(panel), panels.panel(index), count);
                            let rows = to[row * to_stride..].chunks_mut(to_stride);
                            for (to, sums) in rows.zip(sums.chunks_exact(PANEL)).take(count) {
                                let to = &mut to[column..column + width];
                                to.iter_mut().zip(sums).for_each(|(to, &sum)| *to += sum);
                            }
                        }
                    }
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::kernels;
    use super::*;

    fn numbers(count: usize, seed: f32) -> Vec<f32> {
        (0..count).map(|index| (index as f32 * 0.37 + seed).sin()).collect()
    }

    #[test]
    fn equals_the_definition_and_ignores_the_other_rows() {
        for kernel in kernels() {
            for (rows, depth, columns) in [(1, 32, 32), (33, 70, 45), (65, 1100, 96)] {
                let (stride, to_stride) = (depth + 3, columns + 5);
                let (weights, x) = (numbers(columns * depth, 0.1), numbers(rows * stride, 0.7));
                let before = numbers(rows * to_stride, 2.0);
                let packed = PackedRight::new(&weights, depth);
                let (mut to, mut rounded) = (before.clone(), false);
                packed.add_product(kernel, (&x, stride), (&mut to, to_stride));
                for row in 0..rows {
                    let x = &x[row * stride..][..stride];
                    let range = row * to_stride..(row + 1) * to_stride;
                    for column in 0..columns {
                        let weights = &weights[column * depth..][..depth];
                        let product = |(&x, &w): (&f32, &f32)| f64::from(x) * f64::from(w);
                        let exact: f64 = x.iter().zip(weights).map(product).sum();
                        let size: f64 = x.iter().zip(weights).map(|pair| product(pair).abs()).sum();
                        let exact = exact + f64::from(before[range.start + column]);
                        let found = f64::from(to[range.start + column]);
                        assert!((found - exact).abs() < size / 256.0 + 1e-5, "{found} {exact}");
                        rounded |= (found - exact).abs() > size / 65536.0;
                    }
                    let mut alone = before[range.clone()].to_vec();
                    packed.add_product(kernel, (x, stride), (&mut alone, to_stride));
                    assert_eq!(alone, to[range.clone()], "row {row}");
                    assert_eq!(alone[columns..], before[range][columns..]);
                }
                assert!(rounded, "the bound is that of bf16: these sums are not those of f32");
            }
        }
    }
}
