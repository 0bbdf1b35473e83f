//! Splits a matrix product into blocks of panels.
#![expect(unsafe_code, reason = "kernels write through pointers; every bound is checked right before")]

use std::cell::RefCell;

use super::super::linear::{Accumulate, View, ViewMut};
use super::tiles::{self, Line, Operand, PANEL, Panels, STEP, Side};
use super::{amx, dot};
use crate::ComputePath;

/// Depth of a block, chosen so that its panels (32 KiB) stay in the L1 cache.
pub(super) const DEPTH: usize = 16 * STEP;
/// Maximum number of elements in a block of the right operand, chosen so that its panels (1 MiB)
/// stay in the L2 cache.
const RIGHT_BLOCK: usize = 1 << 19;
/// Rows in a block of the left operand: several panels, so that packing reads a transposed operand
/// along its rows in memory.
pub(super) const ROWS: usize = 8 * PANEL;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    Tiles,
    Dots,
}

impl Kernel {
    pub(crate) fn best() -> Option<Self> {
        if amx::available() { Some(Self::Tiles) } else { tiles::available().then_some(Self::Dots) }
    }

    pub(crate) fn path(self) -> ComputePath {
        match self {
            Self::Tiles => ComputePath::Tiles,
            Self::Dots => ComputePath::Dots,
        }
    }
}

/// A kernel set up on this thread, with a buffer for incomplete panels.
#[derive(Debug)]
pub(super) struct Multiplier {
    tiles: Option<amx::Tiles>,
    sums: Sums,
}

#[derive(Debug)]
#[repr(align(64))]
struct Sums([f32; PANEL * PANEL]);

#[derive(Debug)]
pub(super) struct Output<'a> {
    pub(super) data: &'a mut [f32],
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) stride: usize,
}

impl Multiplier {
    pub(super) fn new(kernel: Kernel) -> Self {
        assert!(tiles::available(), "this CPU multiplies no bf16");
        let tiles = if kernel == Kernel::Tiles { amx::Tiles::configure() } else { None };
        Self { tiles, sums: Sums([0.0; PANEL * PANEL]) }
    }

    /// Computes `to = scale a b`, or `to += scale a b`, for two panels of equal depth.
    #[inline]
    pub(super) fn multiply(&mut self, a: &[Line], b: &[Line], to: Output<'_>, into: Accumulate, scale: f32) {
        let Output { data, rows, columns, stride } = to;
        if rows == PANEL && columns == PANEL && scale == 1.0 {
            assert!((PANEL - 1) * stride + PANEL <= data.len(), "a panel's output");
            // SAFETY: the assertions guarantee all 32 rows and, in `new`, the CPU's instructions.
            unsafe {
                match &self.tiles {
                    Some(tiles) => tiles.multiply(a, b, data.as_mut_ptr(), stride, into == Accumulate::Add),
                    None => dot::multiply(a, b, data.as_mut_ptr(), stride, into == Accumulate::Add, PANEL),
                }
            }
            return;
        }
        let sums = self.sums(a, b, rows);
        for (sums, to) in sums.chunks_exact(PANEL).zip(data.chunks_mut(stride)).take(rows) {
            put(&mut to[..columns], sums, into, scale);
        }
    }

    /// Computes `a b` for two panels of equal depth: 32 rows of 32 sums, the first `rows` valid.
    #[inline]
    pub(super) fn sums(&mut self, a: &[Line], b: &[Line], rows: usize) -> &[f32] {
        let sums = &mut self.sums.0;
        // SAFETY: `new` asserts the CPU's instructions, and there are 32 rows of 32 sums.
        unsafe {
            match &self.tiles {
                Some(tiles) => tiles.multiply(a, b, sums.as_mut_ptr(), PANEL, false),
                None => dot::multiply(a, b, sums.as_mut_ptr(), PANEL, false, rows),
            }
        }
        sums
    }
}

thread_local! {
    static BLOCKS: RefCell<[Panels; 2]> = const { RefCell::new([Panels::new(), Panels::new()]) };
}

/// Computes `to = scale * a b`, or `to += scale * a b`, with `a` and `b` rounded to bf16.
pub(crate) fn product(
    kernel: Kernel,
    to: ViewMut<'_, f32>,
    a: View<'_, f32>,
    b: View<'_, f32>,
    into: Accumulate,
    scale: f32,
) {
    to.check(&a, &b);
    let (rows, columns, depth) = (to.rows, to.columns, a.columns);
    if depth == 0 && into == Accumulate::Set {
        to.data.chunks_mut(to.row_stride).take(rows).for_each(|row| row[..columns].fill(0.0));
    }
    if rows == 0 || columns == 0 || depth == 0 {
        return;
    }
    let left = Operand {
        data: a.data,
        outer: rows,
        depth,
        outer_stride: a.row_stride,
        depth_stride: a.column_stride,
    };
    let right = Operand {
        data: b.data,
        outer: columns,
        depth,
        outer_stride: b.column_stride,
        depth_stride: b.row_stride,
    };
    let mut multiplier = Multiplier::new(kernel);
    let ViewMut { data: to, row_stride: stride, .. } = to;
    BLOCKS.with_borrow_mut(|[left_block, right_block]| {
        // Blocks of about equal depth, so that the last is not small.
        let block = depth.div_ceil(depth.div_ceil(DEPTH)).next_multiple_of(STEP);
        let width = RIGHT_BLOCK / block / PANEL * PANEL;
        for (from, left_column) in (0..depth)
            .step_by(block)
            .flat_map(|from| (0..columns).step_by(width).map(move |column| (from, column)))
        {
            let (until, right_column) = (depth.min(from + block), columns.min(left_column + width));
            let into = if from == 0 { into } else { Accumulate::Add };
            right_block.pack(Side::Right, right, left_column..right_column, from..until);
            for top in (0..rows).step_by(ROWS) {
                let bottom = rows.min(top + ROWS);
                left_block.pack(Side::Left, left, top..bottom, from..until);
                for (left_panel, row) in (top..bottom).step_by(PANEL).enumerate() {
                    // So that the destination is written in 32 ascending streams.
                    for (right_panel, column) in (left_column..right_column).step_by(PANEL).enumerate() {
                        let (a, b) = (left_block.panel(left_panel), right_block.panel(right_panel));
                        let (rows, columns) = (PANEL.min(rows - row), PANEL.min(columns - column));
                        let output = Output { data: &mut to[row * stride + column..], rows, columns, stride };
                        multiplier.multiply(a, b, output, into, scale);
                    }
                }
            }
        }
    });
}

#[inline]
fn put(to: &mut [f32], sums: &[f32], into: Accumulate, scale: f32) {
    match into {
        Accumulate::Set => to.iter_mut().zip(sums).for_each(|(to, &sum)| *to = scale * sum),
        Accumulate::Add => to.iter_mut().zip(sums).for_each(|(to, &sum)| *to += scale * sum),
    }
}

#[cfg(test)]
pub(crate) fn kernels() -> Vec<Kernel> {
    let found: Vec<Kernel> = [(Kernel::Tiles, amx::available()), (Kernel::Dots, tiles::available())]
        .into_iter()
        .filter_map(|(kernel, there)| there.then_some(kernel))
        .collect();
    if found.is_empty() {
        eprintln!("skipped: this CPU multiplies no bf16 (AMX or AVX512-BF16)");
    }
    found
}

#[cfg(test)]
#[path = "product_tests.rs"]
mod tests;
