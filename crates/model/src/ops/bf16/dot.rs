//! AVX-512 dot products (`vdpbf16ps`) of two panels, for CPUs without AMX tiles.
#![expect(unsafe_code, reason = "vector instructions behind a check of the CPU")]

use std::arch::x86_64::{
    __m512bh, __m512i, _mm512_add_ps, _mm512_dpbf16_ps, _mm512_loadu_ps, _mm512_loadu_si512,
    _mm512_set1_epi32, _mm512_setzero_ps, _mm512_storeu_ps,
};

use super::tiles::{Line, PANEL, PANEL_LINES, TILE};

/// Rows per step. A step has 16 accumulators (two halves of the columns for each row) and ten
/// loads.
const ROWS: usize = 8;

/// Computes the first `rows` rows, rounded up to a multiple of eight, of the product in
/// [`super::amx::Tiles::multiply`]. A row's sums do not depend on `rows`.
///
/// # Safety
/// [`super::tiles::available`] must have returned true, and 32 rows of 32 elements at `to` must be
/// valid to read and write.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) unsafe fn multiply(a: &[Line], b: &[Line], to: *mut f32, stride: usize, add: bool, rows: usize) {
    assert!(a.len() == b.len() && a.len().is_multiple_of(PANEL_LINES), "panels of one depth");
    for top in (0..rows.min(PANEL)).step_by(ROWS) {
        let mut sums = [[_mm512_setzero_ps(); 2]; ROWS];
        for (a, b) in a.chunks_exact(PANEL_LINES).zip(b.chunks_exact(PANEL_LINES)) {
            let (left, right) = b.split_at(TILE);
            for (pair, (left, right)) in left.iter().zip(right).enumerate() {
                let columns = [load(left), load(right)];
                for (sums, a) in sums.iter_mut().zip(&a[top..top + ROWS]) {
                    let two = bf16(_mm512_set1_epi32(a.pair(pair).cast_signed()));
                    for (sum, column) in sums.iter_mut().zip(columns) {
                        *sum = _mm512_dpbf16_ps(*sum, two, column);
                    }
                }
            }
        }
        for (index, &sum) in sums.as_flattened().iter().enumerate() {
            let address = to.wrapping_add((top + index / 2) * stride + index % 2 * TILE);
            // SAFETY: the caller vouches for all 32 rows.
            unsafe {
                let sum = if add { _mm512_add_ps(_mm512_loadu_ps(address), sum) } else { sum };
                _mm512_storeu_ps(address, sum);
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[inline]
fn load(line: &Line) -> __m512bh {
    // SAFETY: a line is 64 bytes, any of which make a vector.
    bf16(unsafe { _mm512_loadu_si512(std::ptr::from_ref(line).cast()) })
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[inline]
fn bf16(bits: __m512i) -> __m512bh {
    // SAFETY: both are 64 bytes without invalid values.
    unsafe { std::mem::transmute::<__m512i, __m512bh>(bits) }
}
