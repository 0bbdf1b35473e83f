//! Multiplies the few rows of a decoding step by a packed weight matrix.
//!
//! Each output is a chain of fused multiply-adds over the inputs in ascending order, so a
//! sequence's results do not depend on the batch.
//!
//! With few rows, loading the weights takes most of the time. Therefore a block of weights stays in
//! the L1 and L2 caches until it has been used for all rows, while the next block is prefetched.
#![expect(
    clippy::inline_always,
    reason = "code outside of the dispatched function is compiled without its vectors"
)]

use pulp::{Arch, Simd, WithSimd};

use super::panel::{Element, PANEL, Panels, is_bf16};
use super::vector::{LINE, prefetch};
use crate::Compute;
use crate::ops::bf16::{Kernel, PackedRight};

/// Maximum number of inputs in a block of a weight panel; such a block takes 96 KB in single
/// precision.
const DEPTH: usize = 768;
/// Maximum number of rows in a tile with AVX-512, in which each row takes two of the 32 registers
/// as accumulators.
const TILE: usize = 12;
/// Maximum number of rows in a tile on CPUs with 16 narrower registers.
const NARROW_TILE: usize = 6;

fn tile_height(arch: Arch) -> usize {
    struct Height;

    impl WithSimd for Height {
        type Output = usize;

        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> usize {
            if S::F32_LANES >= 16 { TILE } else { NARROW_TILE }
        }
    }

    arch.dispatch(Height)
}

#[derive(Debug)]
enum Stored {
    Single(Panels<f32>),
    /// Weights that bf16 represents exactly, two per word.
    Exact(Panels<u32>),
    /// Weights rounded to bf16, for a bf16 kernel.
    Half(Kernel, PackedRight),
}

#[derive(Debug)]
pub(super) struct Packed {
    inputs: usize,
    stored: Stored,
    /// Bias, padded with zeros; empty for a product without bias.
    bias: Vec<f32>,
    /// Number of outputs, rounded up to whole panels.
    pub(super) width: usize,
}

impl Packed {
    /// Returns an upper bound on the bytes of packed weights; weights that bf16 represents exactly
    /// take half as much.
    pub(super) fn bytes(inputs: usize, outputs: usize, compute: Compute) -> usize {
        match compute.kernel() {
            None => outputs.next_multiple_of(PANEL) * inputs * size_of::<f32>(),
            Some(_) => PackedRight::bytes(outputs, inputs),
        }
    }

    pub(super) fn new(
        inputs: usize,
        weights: &[impl AsRef<[f32]>],
        biases: &[&[f32]],
        compute: Compute,
    ) -> Self {
        let outputs = weights.iter().map(|matrix| matrix.as_ref().len()).sum::<usize>() / inputs;
        let width = outputs.next_multiple_of(PANEL);
        let stored = if let Some(kernel) = compute.kernel() {
            let joined: Vec<f32> = weights.iter().flat_map(AsRef::as_ref).copied().collect();
            Stored::Half(kernel, PackedRight::new(&joined, inputs))
        } else {
            let rows: Vec<&[f32]> =
                weights.iter().flat_map(|matrix| matrix.as_ref().chunks_exact(inputs)).collect();
            if weights.iter().all(|matrix| is_bf16(matrix.as_ref())) {
                Stored::Exact(Panels::new(&rows, inputs))
            } else {
                Stored::Single(Panels::new(&rows, inputs))
            }
        };
        let mut bias = biases.concat();
        if !bias.is_empty() {
            bias.resize(width, 0.0);
        }
        Self { inputs, stored, bias, width }
    }

    /// Appends one output's weights to `to`, or nothing if packing has rounded them to bf16.
    pub(super) fn append_row(&self, output: usize, to: &mut Vec<f32>) {
        match &self.stored {
            Stored::Single(panels) => panels.append_row(output, self.inputs, to),
            Stored::Exact(panels) => panels.append_row(output, self.inputs, to),
            Stored::Half(..) => {}
        }
    }

    /// Computes `out = x W^T + bias`, or `out += x W^T + bias` if `add` is set.
    ///
    /// Reads the first `inputs` columns of `x`, `[rows, x_stride]`, and writes the first
    /// `min(width, out_stride)` columns of `out`, `[rows, out_stride]`.
    pub(super) fn multiply(
        &self,
        arch: Arch,
        x: &[f32],
        x_stride: usize,
        out: &mut [f32],
        out_stride: usize,
        add: bool,
        tiles: &mut Vec<f32>,
    ) {
        let shape = (x_stride, out_stride, add);
        match &self.stored {
            Stored::Single(panels) => self.multiply_panels(arch, panels, x, out, shape, tiles),
            Stored::Exact(panels) => self.multiply_panels(arch, panels, x, out, shape, tiles),
            Stored::Half(kernel, weights) => {
                for row in out.chunks_exact_mut(out_stride) {
                    if !add {
                        row.fill(0.0);
                    }
                    row.iter_mut().zip(&self.bias).for_each(|(out, &bias)| *out += bias);
                }
                weights.add_product(*kernel, (x, x_stride), (out, out_stride));
            }
        }
    }

    fn multiply_panels<T: Element>(
        &self,
        arch: Arch,
        panels: &Panels<T>,
        x: &[f32],
        out: &mut [f32],
        (x_stride, out_stride, add): (usize, usize, bool),
        tiles: &mut Vec<f32>,
    ) {
        let height = tile_height(arch);
        pack_tiles(x, x_stride, self.inputs, height, tiles);
        let rows = x.len() / x_stride;
        tiles.resize(rows * if self.inputs > DEPTH { self.inputs + PANEL } else { self.inputs }, 0.0);
        let (tiles, partial) = tiles.split_at_mut(rows * self.inputs);
        arch.dispatch(Multiply { weights: self, panels, tiles, height, partial, out, out_stride, add });
    }
}

fn pack_tiles(x: &[f32], stride: usize, inputs: usize, most: usize, tiles: &mut Vec<f32>) {
    tiles.clear();
    tiles.resize(x.len() / stride * inputs, 0.0);
    for (rows, tile) in x.chunks(stride * most).zip(tiles.chunks_mut(inputs * most)) {
        let height = tile.len() / inputs;
        for (row, values) in rows.chunks_exact(stride).enumerate() {
            for (to, &value) in tile[row..].iter_mut().step_by(height).zip(&values[..inputs]) {
                *to = value;
            }
        }
    }
}

struct Multiply<'a, T> {
    weights: &'a Packed,
    panels: &'a Panels<T>,
    tiles: &'a [f32],
    height: usize,
    /// Sums over the weight blocks so far, `[rows, PANEL]`; unused if there is only one block.
    partial: &'a mut [f32],
    out: &'a mut [f32],
    out_stride: usize,
    add: bool,
}

impl<T: Element> WithSimd for Multiply<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { weights, panels, tiles, height, partial, out, out_stride, add } = self;
        let inputs = weights.inputs;
        let depth = inputs.div_ceil(inputs.div_ceil(DEPTH));
        // Prefetching is spread over these passes: tiles times pairs of vectors.
        let passes = tiles.len().div_ceil(inputs * height) * (PANEL / (2 * S::F32_LANES));
        for (index, panel) in panels.iter(inputs).enumerate() {
            let first = index * PANEL;
            let bias = weights.bias.get(first..first + PANEL);
            let target = Target { first, stride: out_stride, bias, add };
            for start in (0..inputs).step_by(depth) {
                let end = inputs.min(start + depth);
                let mut fetch = Fetch { panel, at: end * T::ROW, every: passes };
                let block = &panel[start * T::ROW..end * T::ROW];
                let mut rest = &mut partial[..];
                for (tile, out) in tiles.chunks(inputs * height).zip(out.chunks_mut(out_stride * height)) {
                    let rows = tile.len() / inputs;
                    let tile = &tile[start * rows..end * rows];
                    let sums;
                    (sums, rest) = rest.split_at_mut(rest.len().min(rows * PANEL));
                    let part = &mut Part { first: start == 0, last: end == inputs, sums };
                    let fetch = &mut fetch;
                    match rows {
                        1 => tile_times_block::<S, T, 1>(simd, tile, block, part, out, target, fetch),
                        2 => tile_times_block::<S, T, 2>(simd, tile, block, part, out, target, fetch),
                        3 => tile_times_block::<S, T, 3>(simd, tile, block, part, out, target, fetch),
                        4 => tile_times_block::<S, T, 4>(simd, tile, block, part, out, target, fetch),
                        5 => tile_times_block::<S, T, 5>(simd, tile, block, part, out, target, fetch),
                        6 => tile_times_block::<S, T, 6>(simd, tile, block, part, out, target, fetch),
                        7 => tile_times_block::<S, T, 7>(simd, tile, block, part, out, target, fetch),
                        8 => tile_times_block::<S, T, 8>(simd, tile, block, part, out, target, fetch),
                        9 => tile_times_block::<S, T, 9>(simd, tile, block, part, out, target, fetch),
                        10 => tile_times_block::<S, T, 10>(simd, tile, block, part, out, target, fetch),
                        11 => tile_times_block::<S, T, 11>(simd, tile, block, part, out, target, fetch),
                        _ => tile_times_block::<S, T, TILE>(simd, tile, block, part, out, target, fetch),
                    }
                }
            }
        }
    }
}

/// Prefetches the next block of weights, which may be in the next panel.
struct Fetch<'a, T> {
    panel: &'a [T],
    at: usize,
    every: usize,
}

impl<T: Element> Fetch<'_, T> {
    #[inline(always)]
    fn next(&mut self) {
        for line in (0..T::ROW).step_by(LINE) {
            prefetch(self.panel, self.at + line);
        }
        self.at += T::ROW;
    }
}

struct Part<'a> {
    first: bool,
    last: bool,
    sums: &'a mut [f32],
}

#[derive(Clone, Copy)]
struct Target<'a> {
    first: usize,
    stride: usize,
    bias: Option<&'a [f32]>,
    add: bool,
}

#[inline(always)]
fn tile_times_block<S: Simd, T: Element, const ROWS: usize>(
    simd: S,
    tile: &[f32],
    block: &[T],
    part: &mut Part<'_>,
    out: &mut [f32],
    target: Target<'_>,
    fetch: &mut Fetch<'_, T>,
) {
    let half = PANEL / 2 / S::F32_LANES;
    let (tile, _) = tile.as_chunks::<ROWS>();
    for index in 0..half {
        let mut sums = [[simd.splat_f32s(0.0); 2]; ROWS];
        if !part.first {
            // Only loops of constant length keep the sums in registers.
            let (before, _) = S::as_simd_f32s(&*part.sums);
            for row in 0..ROWS {
                let first = 2 * half * row + index;
                sums[row] = [before[first], before[first + half]];
            }
        }
        for (tile, block) in tile.chunks(fetch.every).zip(block.chunks(fetch.every * T::ROW)) {
            fetch.next();
            for (x, weights) in tile.iter().zip(block.chunks_exact(T::ROW)) {
                let [lower, upper] = T::pair(simd, weights, index);
                for row in 0..ROWS {
                    let x = simd.splat_f32s(x[row]);
                    sums[row][0] = simd.mul_add_f32s(x, lower, sums[row][0]);
                    sums[row][1] = simd.mul_add_f32s(x, upper, sums[row][1]);
                }
            }
        }
        if part.last {
            write(simd, sums, index, out, target);
        } else {
            let (after, _) = S::as_mut_simd_f32s(part.sums);
            for row in 0..ROWS {
                let first = 2 * half * row + index;
                [after[first], after[first + half]] = sums[row];
            }
        }
    }
}

#[inline(always)]
fn write<S: Simd, const ROWS: usize>(
    simd: S,
    sums: [[S::f32s; 2]; ROWS],
    index: usize,
    out: &mut [f32],
    target: Target<'_>,
) {
    for (row, sums) in out.chunks_exact_mut(target.stride).zip(sums) {
        for (half, mut sum) in sums.into_iter().enumerate() {
            let at = half * PANEL / 2 + index * S::F32_LANES;
            if let Some(bias) = target.bias {
                let (bias, _) = S::as_simd_f32s(&bias[at..]);
                sum = simd.add_f32s(sum, bias[0]);
            }
            let start = target.first + at;
            if let Some(row) = row.get_mut(start..start + S::F32_LANES) {
                let (row, _) = S::as_mut_simd_f32s(row);
                row[0] = if target.add { simd.add_f32s(row[0], sum) } else { sum };
            } else if let Some(row) = row.get_mut(start..) {
                let mut values = [0.0f32; PANEL];
                let (lanes, _) = S::as_mut_simd_f32s(&mut values);
                lanes[0] = sum;
                for (value_out, &value) in row.iter_mut().zip(&values) {
                    *value_out = if target.add { *value_out + value } else { value };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn equals_the_definition_and_ignores_the_batch() {
        let shapes = [(8, vec![5, 7], 32), (64, vec![32, 64], 96), (33, vec![40], 40)];
        let deep = [(DEPTH + 2, vec![40], 64), (2 * DEPTH + 1, vec![32], 32)];
        for (inputs, parts, out_stride) in shapes.into_iter().chain(deep) {
            let matrices: Vec<Vec<f32>> =
                parts.iter().map(|&outputs| numbers(inputs * outputs, outputs as u32)).collect();
            let outputs: usize = parts.iter().sum();
            let bias = numbers(outputs, 3);
            let slices: Vec<&[f32]> = matrices.iter().map(Vec::as_slice).collect();
            let packed = Packed::new(inputs, &slices, &[&bias], Compute::F32);
            let flat = matrices.concat();
            for (output, row) in flat.chunks_exact(inputs).enumerate() {
                let mut appended = Vec::new();
                packed.append_row(output, &mut appended);
                assert_eq!(appended, row, "row {output}");
            }
            let rows = 21;
            let x_stride = inputs + 3;
            let x = numbers(rows * x_stride, 9);
            let old = numbers(rows * out_stride, 10);
            let mut tiles = Vec::new();
            for arch in [Arch::new(), Arch::Scalar] {
                for add in [false, true] {
                    let mut out = old.clone();
                    packed.multiply(arch, &x, x_stride, &mut out, out_stride, add, &mut tiles);
                    for row in 0..rows {
                        for output in 0..outputs {
                            let exact: f64 = (0..inputs)
                                .map(|k| {
                                    f64::from(x[row * x_stride + k]) * f64::from(flat[output * inputs + k])
                                })
                                .sum::<f64>()
                                + f64::from(bias[output])
                                + if add { f64::from(old[row * out_stride + output]) } else { 0.0 };
                            let found = f64::from(out[row * out_stride + output]);
                            let tolerance = 1e-5 * (inputs as f64 / 64.0).max(1.0);
                            assert!((found - exact).abs() < tolerance, "{found} {exact}");
                        }
                        let mut alone = old[row * out_stride..(row + 1) * out_stride].to_vec();
                        let x = &x[row * x_stride..(row + 1) * x_stride];
                        packed.multiply(arch, x, x_stride, &mut alone, out_stride, add, &mut tiles);
                        assert_eq!(alone, out[row * out_stride..(row + 1) * out_stride]);
                    }
                }
            }
        }
    }

    #[test]
    fn weights_that_bf16_holds_take_half_and_multiply_to_the_same_bits() {
        let (inputs, outputs, rows) = (DEPTH + 2, 40, 21);
        let round = |weight: &f32| half::bf16::from_f32(*weight).to_f32();
        let mut weights: Vec<f32> = numbers(inputs * outputs, 1).iter().map(round).collect();
        let of = |weights: &[f32]| Packed::new(inputs, &[weights], &[], Compute::F32);
        let exact = of(&weights);
        assert!(matches!(exact.stored, Stored::Exact(_)));
        let single = Packed {
            stored: Stored::Single(Panels::new(&weights.chunks(inputs).collect::<Vec<_>>(), inputs)),
            ..of(&weights)
        };
        let mut appended = Vec::new();
        (0..outputs).for_each(|output| exact.append_row(output, &mut appended));
        assert_eq!(appended, weights);
        let x = numbers(rows * inputs, 9);
        for arch in [Arch::new(), Arch::Scalar] {
            let [halves, singles] = [&exact, &single].map(|packed| {
                let mut out = vec![0.0; rows * outputs];
                packed.multiply(arch, &x, inputs, &mut out, outputs, false, &mut Vec::new());
                out.iter().map(|number| number.to_bits()).collect::<Vec<_>>()
            });
            assert_eq!(halves, singles);
        }
        weights[7] = f32::from_bits(weights[7].to_bits() | 1);
        assert!(matches!(of(&weights).stored, Stored::Single(_)));
    }
}
