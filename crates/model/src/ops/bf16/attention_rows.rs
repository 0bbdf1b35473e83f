//! Softmax and its gradient on blocks of scores.
#![expect(unsafe_code, reason = "vector instructions behind a check of the CPU")]

use std::arch::x86_64::{
    __m512, __m512i, __mmask16, _mm512_add_ps, _mm512_fmadd_ps, _mm512_fnmadd_ps, _mm512_load_ps,
    _mm512_loadu_ps, _mm512_mask_max_ps, _mm512_maskz_mov_ps, _mm512_max_ps, _mm512_mul_ps,
    _mm512_reduce_add_ps, _mm512_reduce_max_ps, _mm512_roundscale_ps, _mm512_scalef_ps, _mm512_set1_ps,
    _mm512_setzero_ps, _mm512_store_si512, _mm512_sub_ps,
};
use std::ops::Range;

use super::attention::first_query;
use super::tiles::{self, Line, PANEL, PANEL_LINES, TILE, alternate, narrow};

#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub(super) struct Lanes([f32; 16]);

impl Lanes {
    pub(super) const ZERO: Self = Self([0.0; 16]);

    pub(super) fn flat_mut(lanes: &mut [Self]) -> &mut [f32] {
        bytemuck::cast_slice_mut(lanes)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    #[inline]
    fn get(&self) -> __m512 {
        // SAFETY: 64 bytes on a boundary of 64.
        unsafe { _mm512_load_ps(self.0.as_ptr()) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[inline]
fn sixteen(numbers: &[f32], first: usize) -> __m512 {
    let numbers = &numbers[first..first + 16];
    // SAFETY: the slice has 16 numbers.
    unsafe { _mm512_loadu_ps(numbers.as_ptr()) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[inline]
fn store(line: &mut Line, value: __m512i) {
    // SAFETY: a line is 64 bytes on a boundary of 64.
    unsafe { _mm512_store_si512(std::ptr::from_mut(line).cast(), value) }
}

/// Computes `e^x` for `x <= 88` to two units in the last place; very small results become 0. Uses
/// the method of `exp` in `ops/real.rs`, but multiplies by `2^n` instead of adding `n` to the
/// exponent.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[inline]
fn exp(x: __m512) -> __m512 {
    let n = _mm512_roundscale_ps::<8>(_mm512_mul_ps(x, _mm512_set1_ps(std::f32::consts::LOG2_E)));
    let r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693_359_4), x);
    let r = _mm512_fmadd_ps(n, _mm512_set1_ps(2.121_944_4e-4), r);
    let mut p = _mm512_set1_ps(1.987_569_2e-4);
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(coefficient));
    }
    let y = _mm512_fmadd_ps(_mm512_mul_ps(r, r), p, _mm512_add_ps(r, _mm512_set1_ps(1.0)));
    _mm512_scalef_ps(y, n)
}

#[inline]
fn lowest(count: usize) -> __mmask16 {
    if count >= 16 { !0 } else { (1 << count) - 1 }
}

/// Applies causal softmax to 32 rows of scores; row `r` attends to the first `first + r + 1`
/// columns.
///
/// Writes `e^(scale (s - max))` as a left panel and the inverse of each row's sum, and returns the
/// log of each row's softmax denominator.
pub(super) fn softmax_panel(
    scores: &[Lanes],
    stride: usize,
    first: usize,
    scale: f32,
    lines: &mut [Line],
    inverse: &mut [f32],
) -> [f32; PANEL] {
    assert!(tiles::available(), "this CPU has no bf16");
    // SAFETY: the CPU has the instructions.
    unsafe { softmax_rows(scores, stride, first, scale, lines, inverse) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn softmax_rows(
    scores: &[Lanes],
    stride: usize,
    first: usize,
    scale: f32,
    lines: &mut [Line],
    inverse: &mut [f32],
) -> [f32; PANEL] {
    let mut log_sums = [0.0; PANEL];
    let steps = lines.len() / PANEL_LINES;
    for (row, scores) in scores.chunks(stride).take(PANEL).enumerate() {
        // Rows past the last query would see more columns than exist.
        let seen = (first + row + 1).min(PANEL * steps);
        let scores = &scores[..2 * steps];
        let mut most = _mm512_set1_ps(f32::NEG_INFINITY);
        let whole = seen / 16;
        for lanes in &scores[..whole] {
            most = _mm512_max_ps(most, lanes.get());
        }
        if !seen.is_multiple_of(16) {
            most = _mm512_mask_max_ps(most, lowest(seen % 16), most, scores[whole].get());
        }
        let max = _mm512_reduce_max_ps(most);
        let (factor, shift) = (_mm512_set1_ps(scale), _mm512_set1_ps(max * scale));
        let mut sums = _mm512_setzero_ps();
        let line = row / TILE * TILE + row % TILE;
        for (step, pair) in scores.chunks_exact(2).enumerate() {
            let mut halves = [_mm512_setzero_ps(); 2];
            for (half, lanes) in pair.iter().enumerate() {
                let left = seen.saturating_sub(32 * step + 16 * half);
                let power = exp(_mm512_sub_ps(_mm512_mul_ps(lanes.get(), factor), shift));
                halves[half] = _mm512_maskz_mov_ps(lowest(left), power);
                sums = _mm512_add_ps(sums, halves[half]);
            }
            store(&mut lines[step * PANEL_LINES + line], narrow(halves[0], halves[1]));
        }
        let sum = _mm512_reduce_add_ps(sums);
        inverse[row] = 1.0 / sum;
        log_sums[row] = max * scale + sum.ln();
    }
    log_sums
}

pub(super) struct BackwardBlock<'a> {
    /// `K Q^T`, with rows `score_stride` vectors apart.
    pub(super) scores: &'a [Lanes],
    /// `V dO^T`, laid out like `scores`.
    pub(super) derivatives: &'a [Lanes],
    pub(super) score_stride: usize,
    pub(super) keys: Range<usize>,
    pub(super) queries: Range<usize>,
    pub(super) before: usize,
    /// Log of each query's softmax denominator.
    pub(super) log_sums: &'a [f32],
    /// `D_t = dO_t . O_t`, per query.
    pub(super) pulls: &'a [f32],
    pub(super) scale: f32,
    /// Probabilities and score gradients as left operands, `[keys][queries]`, and score gradients
    /// as a right operand, `[queries][keys]`.
    pub(super) lines: &'a mut [Vec<Line>; 3],
}

/// Computes `P^T = e^(scale S^T - log_sum)` and `dS^T = scale P^T (dP^T - D)`; both are zero for
/// masked keys.
pub(super) fn backward_block(block: BackwardBlock<'_>) {
    assert!(tiles::available(), "this CPU has no bf16");
    // SAFETY: the CPU has the instructions.
    unsafe { backward_rows(block) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn backward_rows(block: BackwardBlock<'_>) {
    let BackwardBlock { scores, derivatives, score_stride, keys, queries, before, .. } = block;
    let BackwardBlock { log_sums, pulls, scale, lines, .. } = block;
    let [probabilities, d_scores, d_scores_right] = lines;
    let factor = _mm512_set1_ps(scale);
    for key in keys.clone() {
        let local_key = key - keys.start;
        for query in queries.start.max(first_query(key, before))..queries.end {
            let local_query = query - queries.start;
            let left = (local_key * queries.len() + local_query) * PANEL_LINES;
            let right = (local_query * keys.len() + local_key) * PANEL_LINES;
            let (probabilities, d_scores) =
                (&mut probabilities[left..left + PANEL_LINES], &mut d_scores[left..left + PANEL_LINES]);
            let d_scores_right = &mut d_scores_right[right..right + PANEL_LINES];
            let first = query * PANEL;
            // Earlier queries of this panel do not see the key panel's first key.
            let hidden = (key * PANEL).saturating_sub(before + first);
            // If all see it, they see this many more keys.
            let ahead = (before + first).saturating_sub(key * PANEL);
            let log_sums = [sixteen(log_sums, first), sixteen(log_sums, first + 16)];
            let pulls = [sixteen(pulls, first), sixteen(pulls, first + 16)];
            for pair in 0..TILE {
                // Two keys by two halves of the queries.
                let (mut p, mut d) = ([[_mm512_setzero_ps(); 2]; 2], [[_mm512_setzero_ps(); 2]; 2]);
                for odd in 0..2 {
                    let row = 2 * pair + odd;
                    let at = (local_key * PANEL + row) * score_stride + 2 * local_query;
                    for half in 0..2 {
                        let score = scores[at + half].get();
                        let power = exp(_mm512_sub_ps(_mm512_mul_ps(score, factor), log_sums[half]));
                        let blind = (hidden + row).saturating_sub(ahead + 16 * half);
                        let visible = !lowest(blind);
                        p[odd][half] = _mm512_maskz_mov_ps(visible, power);
                        let off = _mm512_sub_ps(derivatives[at + half].get(), pulls[half]);
                        d[odd][half] = _mm512_mul_ps(_mm512_mul_ps(p[odd][half], factor), off);
                    }
                    store(&mut probabilities[row], narrow(p[odd][0], p[odd][1]));
                    store(&mut d_scores[row], narrow(d[odd][0], d[odd][1]));
                }
                for half in 0..2 {
                    store(&mut d_scores_right[half * TILE + pair], alternate(narrow(d[0][half], d[1][half])));
                }
            }
        }
    }
}
