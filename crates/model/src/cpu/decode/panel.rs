//! Weight matrices in panels of 32 outputs, in single precision or two bf16 weights per word.
//!
//! Weights that bf16 represents exactly are stored in half the memory and widened in registers.
//! Both formats give bit-identical products.
#![expect(
    clippy::inline_always,
    reason = "code outside of the dispatched function is compiled without its vectors"
)]

use pulp::Simd;

use super::aligned::Aligned;
use super::vector::LINE;

pub(super) const PANEL: usize = 32;
/// Bits of a word that hold the weight of an output in the panel's second half.
const UPPER: u32 = 0xffff_0000;

pub(super) trait Element: Copy + Default {
    const ROW: usize;

    /// Stores the weight of `output` in `row`, whose bits for this output must be zero.
    fn store(row: &mut [Self], output: usize, weight: f32);

    fn weight(row: &[Self], output: usize) -> f32;

    /// Returns the vectors of weights at `index` in the first and in the second half of the
    /// outputs.
    fn pair<S: Simd>(simd: S, row: &[Self], index: usize) -> [S::f32s; 2];
}

impl Element for f32 {
    const ROW: usize = PANEL;

    fn store(row: &mut [Self], output: usize, weight: f32) {
        row[output] = weight;
    }

    fn weight(row: &[Self], output: usize) -> f32 {
        row[output]
    }

    #[inline(always)]
    fn pair<S: Simd>(_: S, row: &[Self], index: usize) -> [S::f32s; 2] {
        let (vectors, _) = S::as_simd_f32s(row);
        [vectors[index], vectors[PANEL / 2 / S::F32_LANES + index]]
    }
}

/// A word of two bf16 weights: output `i` in the lower bits, output `i + 16` in the upper.
impl Element for u32 {
    const ROW: usize = PANEL / 2;

    fn store(row: &mut [Self], output: usize, weight: f32) {
        let bits = weight.to_bits();
        row[output % Self::ROW] |= if output < PANEL / 2 { bits >> 16 } else { bits & UPPER };
    }

    fn weight(row: &[Self], output: usize) -> f32 {
        let word = row[output % Self::ROW];
        f32::from_bits(if output < PANEL / 2 { word << 16 } else { word & UPPER })
    }

    #[inline(always)]
    fn pair<S: Simd>(simd: S, row: &[Self], index: usize) -> [S::f32s; 2] {
        let (words, _) = S::as_simd_u32s(row);
        let lower = simd.wrapping_dyn_shl_u32s(words[index], simd.splat_u32s(16));
        let upper = simd.and_u32s(words[index], simd.splat_u32s(UPPER));
        [simd.transmute_f32s_u32s(lower), simd.transmute_f32s_u32s(upper)]
    }
}

pub(super) fn is_bf16(numbers: &[f32]) -> bool {
    numbers.iter().all(|number| number.to_bits() & !UPPER == 0)
}

#[derive(Debug)]
pub(super) struct Panels<T>(Aligned<T>);

impl<T: Element> Panels<T> {
    pub(super) fn new(rows: &[&[f32]], inputs: usize) -> Self {
        let mut panels = Aligned::zeros(rows.len().div_ceil(PANEL) * inputs * T::ROW);
        let packed: &mut [T] = panels.get_mut();
        for (rows, panel) in rows.chunks(PANEL).zip(packed.chunks_exact_mut(inputs * T::ROW)) {
            // Both sides are whole cache lines.
            for (block, start) in panel.chunks_mut(T::ROW * LINE).zip((0..inputs).step_by(LINE)) {
                for (output, row) in rows.iter().enumerate() {
                    for (to, &weight) in block.chunks_exact_mut(T::ROW).zip(&row[start..]) {
                        T::store(to, output, weight);
                    }
                }
            }
        }
        Self(panels)
    }

    pub(super) fn iter(&self, inputs: usize) -> impl Iterator<Item = &[T]> {
        self.0.get().chunks_exact(inputs * T::ROW)
    }

    pub(super) fn append_row(&self, output: usize, inputs: usize, to: &mut Vec<f32>) {
        let panel = self.iter(inputs).nth(output / PANEL).unwrap_or_default();
        to.extend(panel.chunks_exact(T::ROW).map(|row| T::weight(row, output % PANEL)));
    }
}
