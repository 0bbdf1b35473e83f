//! Packs the operands of a matrix product as panels of bf16 tiles.
//!
//! A panel holds 32 rows of the left or 32 columns of the right operand, as two tiles of 16 lines
//! of 64 bytes for each step along the depth (the summed dimension):
//!
//! ```text
//! left    line r   = row r,      depths 0 .. 32
//! right   line p   = columns 0 .. 16, of each the depths 2 p and 2 p + 1
//! ```
//!
//! If an operand's layout requires it, blocks of 16 x 16 pairs are transposed in registers.
//! Elements are rounded to the nearest bf16, ties to even; subnormal results become zero. Tiles are
//! padded with zeros.
#![expect(unsafe_code, reason = "vector instructions behind a check of the CPU")]
#![expect(
    clippy::inline_always,
    reason = "the parts of a tile stay in registers only where they are inlined"
)]

use std::arch::x86_64::{
    __m512, __m512bh, __m512i, __mmask16, _mm512_cvtne2ps_pbh, _mm512_loadu_si512, _mm512_maskz_loadu_ps,
    _mm512_permutexvar_epi16, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_shuffle_i32x4,
    _mm512_store_si512, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32,
    _mm512_unpacklo_epi64,
};
use std::ops::Range;

pub(super) const TILE: usize = 16;
/// Rows of the left operand, or columns of the right, per panel.
pub(crate) const PANEL: usize = 2 * TILE;
pub(crate) const STEP: usize = 2 * TILE;
pub(super) const PANEL_LINES: usize = 2 * TILE;

/// A tile row: 32 bf16 elements on one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Line([u16; 32]);

impl Line {
    pub(super) const ZERO: Self = Self([0; 32]);

    /// Returns two adjacent elements, the first in the low half.
    #[inline(always)]
    pub(super) fn pair(&self, index: usize) -> u32 {
        u32::from(self.0[2 * index]) | u32::from(self.0[2 * index + 1]) << 16
    }
}

pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512bf16")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Panels hold rows.
    Left,
    /// Panels hold columns.
    Right,
}

/// A strided operand. `outer` is the number of rows of a left operand, or of columns of a right
/// operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand<'a> {
    pub(super) data: &'a [f32],
    pub(super) outer: usize,
    pub(super) depth: usize,
    pub(super) outer_stride: usize,
    /// Distance between elements along the depth. Either this stride or `outer_stride` must be 1.
    pub(super) depth_stride: usize,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Panels {
    lines: Vec<Line>,
    length: usize,
}

impl Panels {
    pub(crate) const fn new() -> Self {
        Self { lines: Vec::new(), length: 0 }
    }

    #[inline]
    pub(super) fn panel(&self, index: usize) -> &[Line] {
        &self.lines[index * self.length..(index + 1) * self.length]
    }

    /// Packs a block of `from`, in which one of the strides must be 1.
    pub(super) fn pack(&mut self, side: Side, from: Operand<'_>, outer: Range<usize>, depth: Range<usize>) {
        assert!(available(), "this CPU cannot pack bf16");
        assert!(from.outer_stride == 1 || from.depth_stride == 1, "an operand lies along rows or columns");
        assert!(outer.end <= from.outer && depth.end <= from.depth, "a block inside the operand");
        let last = |count: usize, stride: usize| count.saturating_sub(1) * stride;
        let empty = outer.is_empty() || depth.is_empty();
        let end = last(from.outer, from.outer_stride) + last(from.depth, from.depth_stride) + 1;
        assert!(empty || end <= from.data.len(), "the operand inside its slice");
        let (panels, steps) = (outer.len().div_ceil(PANEL), depth.len().div_ceil(STEP));
        self.length = steps * PANEL_LINES;
        let lines = panels * self.length;
        if self.lines.len() < lines {
            self.lines.resize(lines, Line::ZERO);
        }
        if empty {
            return;
        }
        // SAFETY: the CPU has the instructions; block, operand and lines are in bounds.
        unsafe { pack(side, from, &outer, &depth, &mut self.lines[..lines]) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn pack(side: Side, from: Operand<'_>, outer: &Range<usize>, depth: &Range<usize>, to: &mut [Line]) {
    let steps = depth.len().div_ceil(STEP);
    let panels = to.len() / (steps * PANEL_LINES);
    let along = from.depth_stride == 1;
    for index in 0..panels * steps {
        let (panel, step) =
            if along { (index / steps, index % steps) } else { (index % panels, index / panels) };
        let first_depth = depth.start + step * STEP;
        let depths = STEP.min(depth.end - first_depth);
        let lines = &mut to[(panel * steps + step) * PANEL_LINES..][..PANEL_LINES];
        for (half, lines) in lines.chunks_exact_mut(TILE).enumerate() {
            let first = outer.start + panel * PANEL + half * TILE;
            let count = TILE.min(outer.end.saturating_sub(first));
            let offset = first * from.outer_stride + first_depth * from.depth_stride;
            let start = from.data.as_ptr().wrapping_add(offset);
            // SAFETY: `count` rows of `depths` numbers are inside the operand.
            let tile = unsafe {
                match (side, along) {
                    (Side::Left, true) => rows(start, from.outer_stride, count, depths),
                    (Side::Right, true) => transpose(rows(start, from.outer_stride, count, depths)),
                    (Side::Left, false) => transpose(pairs(start, from.depth_stride, count, depths)),
                    (Side::Right, false) => pairs(start, from.depth_stride, count, depths),
                }
            };
            for (line, value) in lines.iter_mut().zip(tile) {
                // SAFETY: a line is 64 bytes on a boundary of 64.
                unsafe { _mm512_store_si512(std::ptr::from_mut(line).cast(), value) }
            }
        }
    }
}

#[inline(always)]
fn mask(count: usize) -> __mmask16 {
    if count >= TILE { !0 } else { (1 << count) - 1 }
}

/// Loads `count` elements and zeroes the other lanes.
///
/// # Safety
/// The elements must be valid to read.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[inline]
unsafe fn load(from: *const f32, count: usize) -> __m512 {
    // SAFETY: lanes that are masked out are not read.
    if count == 0 { _mm512_setzero_ps() } else { unsafe { _mm512_maskz_loadu_ps(mask(count), from) } }
}

/// Converts two vectors to one bf16 vector, `low` first.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[inline]
pub(super) fn narrow(low: __m512, high: __m512) -> __m512i {
    // SAFETY: both are 64 bytes without invalid values.
    unsafe { std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low)) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[inline]
pub(super) fn alternate(both: __m512i) -> __m512i {
    const TURNS: [u16; 32] = {
        let mut turns = [0; 32];
        let mut index = 0;
        while index < 32 {
            turns[index] = (index / 2 + index % 2 * 16) as u16;
            index += 1;
        }
        turns
    };
    // SAFETY: 64 bytes of a constant.
    let turns = unsafe { _mm512_loadu_si512(TURNS.as_ptr().cast()) };
    _mm512_permutexvar_epi16(turns, both)
}

/// Loads a tile whose line `r` is row `r` of memory: 16 rows of 32 elements.
///
/// # Safety
/// `count` rows of `depths` elements, `stride` apart, must be valid to read.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[inline]
unsafe fn rows(from: *const f32, stride: usize, count: usize, depths: usize) -> [__m512i; TILE] {
    let mut tile = [_mm512_setzero_si512(); TILE];
    for (row, line) in tile.iter_mut().enumerate() {
        if row < count {
            let from = from.wrapping_add(row * stride);
            // SAFETY: as the caller guarantees.
            let (low, high) = unsafe {
                (load(from, depths.min(TILE)), load(from.wrapping_add(TILE), depths.saturating_sub(TILE)))
            };
            *line = narrow(low, high);
        }
    }
    tile
}

/// Loads a tile whose line `p` interleaves rows `2 p` and `2 p + 1` of memory: 32 rows of 16
/// elements.
///
/// # Safety
/// `depths` rows of `count` elements, `stride` apart, must be valid to read.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[inline]
unsafe fn pairs(from: *const f32, stride: usize, count: usize, depths: usize) -> [__m512i; TILE] {
    let mut tile = [_mm512_setzero_si512(); TILE];
    for (pair, line) in tile.iter_mut().enumerate() {
        if 2 * pair < depths {
            let from = from.wrapping_add(2 * pair * stride);
            let second = if 2 * pair + 1 < depths { count } else { 0 };
            // SAFETY: as the caller guarantees.
            let (low, high) = unsafe { (load(from, count), load(from.wrapping_add(stride), second)) };
            *line = alternate(narrow(low, high));
        }
    }
    tile
}

/// Moves pair `p` of line `r` to pair `r` of line `p`.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[inline]
#[expect(clippy::large_types_passed_by_value, reason = "it is inlined and stays in registers")]
fn transpose(t: [__m512i; TILE]) -> [__m512i; TILE] {
    let mut u = t;
    for block in 0..4 {
        let [a, b, c, d] = [t[4 * block], t[4 * block + 1], t[4 * block + 2], t[4 * block + 3]];
        let (ab_low, ab_high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
        let (cd_low, cd_high) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
        u[4 * block] = _mm512_unpacklo_epi64(ab_low, cd_low);
        u[4 * block + 1] = _mm512_unpackhi_epi64(ab_low, cd_low);
        u[4 * block + 2] = _mm512_unpacklo_epi64(ab_high, cd_high);
        u[4 * block + 3] = _mm512_unpackhi_epi64(ab_high, cd_high);
    }
    let mut v = u;
    for line in 0..4 {
        let [a, b, c, d] = [u[line], u[4 + line], u[8 + line], u[12 + line]];
        let (ab_even, ab_odd) = (_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b));
        let (cd_even, cd_odd) = (_mm512_shuffle_i32x4::<0x88>(c, d), _mm512_shuffle_i32x4::<0xdd>(c, d));
        v[line] = _mm512_shuffle_i32x4::<0x88>(ab_even, cd_even);
        v[4 + line] = _mm512_shuffle_i32x4::<0x88>(ab_odd, cd_odd);
        v[8 + line] = _mm512_shuffle_i32x4::<0xdd>(ab_even, cd_even);
        v[12 + line] = _mm512_shuffle_i32x4::<0xdd>(ab_odd, cd_odd);
    }
    v
}
