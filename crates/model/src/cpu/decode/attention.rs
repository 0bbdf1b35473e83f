//! Computes the attention `out = softmax(q k^T / sqrt(width)) v` of a step's rows. Each row attends
//! to the positions up to its own.
//!
//! Rows that read the same pages, and query heads that share a key/value head, are grouped to load
//! keys and values once. Results stay bit-identical, because each score belongs to one row and
//! position, and values are added in position order.
#![expect(
    clippy::inline_always,
    reason = "code outside of the dispatched function is compiled without its vectors"
)]

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::pages::{Cache, PAGE};
use super::sharing::{Run, Sharing, Tree};
use super::vector::{LINE, exp, maximum, prefetch};

/// Maximum number of queries that share one load of keys and values, on CPUs with 32 vector
/// registers.
const MOST_TOGETHER: usize = 12;

macro_rules! together {
    ($left:expr, $lanes:expr, $function:ident $arguments:tt) => {
        match $left {
            left if $lanes >= 16 && left >= MOST_TOGETHER => together!(@ MOST_TOGETHER, $function $arguments),
            left if $lanes >= 16 && left >= 6 => together!(@ 6, $function $arguments),
            1 => together!(@ 1, $function $arguments),
            2 => together!(@ 2, $function $arguments),
            3 => together!(@ 3, $function $arguments),
            _ => together!(@ 4, $function $arguments),
        }
    };
    (@ $count:expr, $function:ident ($($argument:expr),*)) => {{
        $function::<S, { $count }>($($argument),*);
        $count
    }};
}

#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// `[queries, positions]`.
    scores: Vec<f32>,
    /// Queries interleaved by [`pack`].
    packed: Vec<f32>,
    /// `[queries, value_width]`.
    sums: Vec<f32>,
    inverse: Vec<f32>,
}

impl Scratch {
    fn grow(&mut self, queries: usize, positions: usize, width: usize) {
        for (buffer, len) in
            [(&mut self.scores, positions), (&mut self.packed, width), (&mut self.sums, width)]
        {
            if buffer.len() < queries * len {
                buffer.resize(queries * len, 0.0);
            }
        }
    }
}

pub(super) struct Attention<'a> {
    pub(super) cache: &'a Cache,
    pub(super) layer: usize,
    pub(super) sharing: &'a Sharing,
    /// Queries, `[query_heads, width]` for each row; rows are `stride` elements apart.
    pub(super) queries: &'a [f32],
    pub(super) stride: usize,
    /// `[rows, query_heads, width]`.
    pub(super) out: &'a mut [f32],
    pub(super) scratch: &'a mut Scratch,
}

impl WithSimd for Attention<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { cache, layer, sharing, queries, stride, out, scratch } = self;
        let heads = cache.heads();
        for head in 0..heads.keys {
            let at = At { cache, layer, head, queries, stride };
            for run in &sharing.long {
                let all = run.rows.len() * heads.group();
                let mut first = 0;
                while first < all {
                    first +=
                        together!(all - first, S::F32_LANES, attend_run(simd, at, run, first, out, scratch));
                }
            }
            for tree in &sharing.trees {
                attend_tree(simd, at, sharing, tree, out, scratch);
            }
        }
    }
}

#[derive(Clone, Copy)]
struct At<'a> {
    cache: &'a Cache,
    layer: usize,
    head: usize,
    queries: &'a [f32],
    stride: usize,
}

impl<'a> At<'a> {
    fn query(&self, row: usize, of_group: usize) -> &'a [f32] {
        let heads = self.cache.heads();
        let start = row * self.stride + (self.head * heads.group() + of_group) * heads.width;
        &self.queries[start..start + heads.width]
    }

    #[inline(always)]
    fn write<S: Simd>(
        &self,
        simd: S,
        (row, of_group): (usize, usize),
        sums: &[f32],
        inverse: f32,
        out: &mut [f32],
    ) {
        let heads = self.cache.heads();
        let place = (row * heads.queries + self.head * heads.group() + of_group) * heads.width;
        let scale = simd.splat_f32s(inverse);
        let (sums, _) = S::as_simd_f32s(sums);
        for (out, &sum) in out[place..place + heads.width].chunks_mut(S::F32_LANES).zip(sums) {
            simd.partial_store_f32s(out, simd.mul_f32s(sum, scale));
        }
    }
}

#[inline(always)]
fn attend_run<S: Simd, const QUERIES: usize>(
    simd: S,
    at: At<'_>,
    run: &Run,
    first: usize,
    out: &mut [f32],
    scratch: &mut Scratch,
) {
    let heads = at.cache.heads();
    let (group, value_width) = (heads.group(), at.cache.value_width());
    let places: [(usize, usize); QUERIES] =
        std::array::from_fn(|query| ((first + query) / group, (first + query) % group));
    let lens = places.map(|(row, _)| run.len + row);
    let most = lens[QUERIES - 1];
    let padded = most.next_multiple_of(PAGE);
    scratch.grow(QUERIES, padded, value_width);
    let Scratch { scores, packed, sums, .. } = scratch;
    let places = places.map(|(row, of_group)| (run.rows.start + row, of_group));
    let packed = &mut packed[..QUERIES * heads.width];
    pack(places.map(|(row, of_group)| at.query(row, of_group)), packed);
    let pages = Pages { at, table: &at.cache.table(run.sequence)[..padded / PAGE] };
    score::<S, QUERIES>(simd, pages, packed, scores, padded);
    let scores = &mut scores[..QUERIES * padded];
    let mut inverse = [0.0f32; QUERIES];
    for ((scores, inverse), len) in scores.chunks_exact_mut(padded).zip(&mut inverse).zip(lens) {
        *inverse = softmax(simd, scores, len);
    }
    let sums = &mut sums[..QUERIES * value_width];
    sums.fill(0.0);
    let weights: [&[f32]; QUERIES] = std::array::from_fn(|query| &scores[query * padded..][..most]);
    // Positions that all rows see come first.
    weigh_columns::<S, QUERIES>(simd, pages, weights.map(|weights| &weights[..lens[0]]), sums);
    for position in lens[0]..most {
        let value = &pages.values(position / PAGE)[position % PAGE * value_width..][..value_width];
        let (value, _) = S::as_simd_f32s(value);
        for (query, sums) in sums.chunks_exact_mut(value_width).enumerate() {
            if position < lens[query] {
                let weight = simd.splat_f32s(weights[query][position]);
                let (sums, _) = S::as_mut_simd_f32s(sums);
                for (sum, &value) in sums.iter_mut().zip(value) {
                    *sum = simd.mul_add_f32s(weight, value, *sum);
                }
            }
        }
    }
    for ((place, sums), inverse) in places.into_iter().zip(sums.chunks_exact(value_width)).zip(inverse) {
        at.write(simd, place, sums, inverse, out);
    }
}

#[inline(always)]
fn attend_tree<S: Simd>(
    simd: S,
    at: At<'_>,
    sharing: &Sharing,
    tree: &Tree,
    out: &mut [f32],
    scratch: &mut Scratch,
) {
    let heads = at.cache.heads();
    let (group, value_width) = (heads.group(), at.cache.value_width());
    let members = &sharing.members[tree.members.clone()];
    let spans = &sharing.spans[tree.spans.clone()];
    let count = members.len() * group;
    let padded = members.iter().map(|member| member.len.next_multiple_of(PAGE)).max().unwrap_or(0);
    scratch.grow(count, padded, value_width);
    let Scratch { scores, packed, sums, inverse } = scratch;
    for span in spans {
        let pages = Pages { at, table: &at.cache.table(span.sequence)[span.pages.clone()] };
        let start = span.pages.start * PAGE;
        let (mut query, end) = (span.members.start * group, span.members.end * group);
        while query < end {
            let scores = &mut scores[query * padded + start..];
            query += together!(
                end - query,
                S::F32_LANES,
                score_part(simd, pages, members, query, packed, scores, padded)
            );
        }
    }
    inverse.clear();
    for (query, scores) in scores.chunks_exact_mut(padded).take(count).enumerate() {
        inverse.push(softmax(simd, scores, members[query / group].len));
    }
    let sums = &mut sums[..count * value_width];
    sums.fill(0.0);
    for span in spans {
        let pages = Pages { at, table: &at.cache.table(span.sequence)[span.pages.clone()] };
        // Rows share only whole pages; a single row's last page may be partly filled.
        let end = (span.pages.end * PAGE).min(members[span.members.start].len);
        let positions = span.pages.start * PAGE..end;
        let (mut query, end) = (span.members.start * group, span.members.end * group);
        while query < end {
            let scores = &scores[query * padded..];
            let sums = &mut sums[query * value_width..];
            query += together!(
                end - query,
                S::F32_LANES,
                weigh_part(simd, pages, positions.clone(), scores, padded, sums)
            );
        }
    }
    for ((query, sums), &inverse) in sums.chunks_exact(value_width).enumerate().zip(&*inverse) {
        let place = (members[query / group].rows.start, query % group);
        at.write(simd, place, sums, inverse, out);
    }
}

#[inline(always)]
fn score_part<S: Simd, const QUERIES: usize>(
    simd: S,
    pages: Pages<'_>,
    members: &[Run],
    first: usize,
    packed: &mut [f32],
    scores: &mut [f32],
    stride: usize,
) {
    let group = pages.at.cache.heads().group();
    let queries: [&[f32]; QUERIES] = std::array::from_fn(|query| {
        let query = first + query;
        pages.at.query(members[query / group].rows.start, query % group)
    });
    let packed = &mut packed[..QUERIES * queries[0].len()];
    pack(queries, packed);
    score::<S, QUERIES>(simd, pages, packed, scores, stride);
}

#[inline(always)]
fn weigh_part<S: Simd, const QUERIES: usize>(
    simd: S,
    pages: Pages<'_>,
    positions: Range<usize>,
    scores: &[f32],
    stride: usize,
    sums: &mut [f32],
) {
    let weights = std::array::from_fn(|query| &scores[query * stride..][positions.clone()]);
    weigh_columns::<S, QUERIES>(simd, pages, weights, sums);
}

/// Interleaves the queries in pairs of elements: two of the first query, two of the second, and so
/// on.
#[inline(always)]
fn pack<const QUERIES: usize>(queries: [&[f32]; QUERIES], packed: &mut [f32]) {
    for (index, query) in queries.into_iter().enumerate() {
        for (to, pair) in packed.chunks_exact_mut(2 * QUERIES).zip(query.chunks_exact(2)) {
            to[2 * index..2 * index + 2].copy_from_slice(pair);
        }
    }
}

#[derive(Clone, Copy)]
struct Pages<'a> {
    at: At<'a>,
    table: &'a [usize],
}

impl<'a> Pages<'a> {
    fn keys(&self, index: usize) -> &'a [f32] {
        self.at.cache.part(self.table[index], self.at.layer, self.at.head).0
    }

    fn values(&self, index: usize) -> &'a [f32] {
        self.at.cache.part(self.table[index], self.at.layer, self.at.head).1
    }

    fn after_keys(&self, index: usize) -> &'a [f32] {
        if index + 1 < self.table.len() { self.keys(index + 1) } else { self.values(0) }
    }
}

#[inline(always)]
fn score<S: Simd, const QUERIES: usize>(
    simd: S,
    pages: Pages<'_>,
    packed: &[f32],
    scores: &mut [f32],
    stride: usize,
) {
    let (width, lanes) = (packed.len() / QUERIES, S::F32_LANES);
    let scale = simd.splat_f32s(1.0 / (width as f32).sqrt());
    let vectors = PAGE / lanes;
    for index in 0..pages.table.len() {
        let next = pages.after_keys(index);
        let (keys, _) = S::as_simd_f32s(pages.keys(index));
        for vector in 0..vectors {
            // Two accumulators per query hide the latency of the multiply-add.
            let mut even = [simd.splat_f32s(0.0); QUERIES];
            let mut odd = [simd.splat_f32s(0.0); QUERIES];
            let (pairs, _) = packed.as_chunks::<2>();
            let steps = pairs.chunks_exact(QUERIES).zip(keys.chunks_exact(2 * vectors));
            for (step, (pairs, keys)) in steps.enumerate() {
                if vector == 0 {
                    prefetch(next, 2 * PAGE * step);
                    prefetch(next, 2 * PAGE * step + LINE);
                }
                for q in 0..QUERIES {
                    even[q] = simd.mul_add_f32s(simd.splat_f32s(pairs[q][0]), keys[vector], even[q]);
                    odd[q] = simd.mul_add_f32s(simd.splat_f32s(pairs[q][1]), keys[vectors + vector], odd[q]);
                }
            }
            for q in 0..QUERIES {
                let start = q * stride + index * PAGE + vector * lanes;
                let (lane, _) = S::as_mut_simd_f32s(&mut scores[start..start + lanes]);
                lane[0] = simd.mul_f32s(simd.add_f32s(even[q], odd[q]), scale);
            }
        }
    }
}

/// Exponentiates the first `len` scores and returns the inverse of their sum.
#[inline(always)]
fn softmax<S: Simd>(simd: S, scores: &mut [f32], len: usize) -> f32 {
    let scores = &mut scores[..len.next_multiple_of(PAGE)];
    // Lanes past the last position hold keys that this query may not see.
    scores[len..].fill(f32::NEG_INFINITY);
    let max = simd.splat_f32s(maximum(simd, scores));
    let (vectors, _) = S::as_mut_simd_f32s(scores);
    let mut sums = simd.splat_f32s(0.0);
    for score in vectors {
        *score = exp(simd, simd.sub_f32s(*score, max));
        sums = simd.add_f32s(sums, *score);
    }
    1.0 / simd.reduce_sum_f32s(sums)
}

/// Adds each query's weighted sum of values to `sums`, `[QUERIES, value_width]`. `weights` has one
/// weight per query and position, starting at the first position.
#[inline(always)]
fn weigh_columns<S: Simd, const QUERIES: usize>(
    simd: S,
    pages: Pages<'_>,
    weights: [&[f32]; QUERIES],
    sums: &mut [f32],
) {
    let vectors = pages.at.cache.value_width() / S::F32_LANES;
    let mut vector = 0;
    while vector < vectors {
        // More columns would not fit into the registers.
        vector += if vectors - vector >= 4 && QUERIES <= if S::F32_LANES >= 16 { 6 } else { 4 } {
            weigh::<S, QUERIES, 4>(simd, pages, weights, vector, sums)
        } else if vectors - vector >= 2 {
            weigh::<S, QUERIES, 2>(simd, pages, weights, vector, sums)
        } else {
            weigh::<S, QUERIES, 1>(simd, pages, weights, vector, sums)
        };
    }
}

/// Computes [`weigh_columns`] for `COLUMNS` vectors of `sums`, from index `vector` on. Returns
/// `COLUMNS`.
#[inline(always)]
#[expect(clippy::manual_memcpy, reason = "loops of a constant length alone leave the sums in registers")]
fn weigh<S: Simd, const QUERIES: usize, const COLUMNS: usize>(
    simd: S,
    pages: Pages<'_>,
    weights: [&[f32]; QUERIES],
    vector: usize,
    sums: &mut [f32],
) -> usize {
    let (value_width, lanes) = (pages.at.cache.value_width(), S::F32_LANES);
    let first = vector * lanes;
    let mut adding = [[simd.splat_f32s(0.0); COLUMNS]; QUERIES];
    for q in 0..QUERIES {
        let (before, _) = S::as_simd_f32s(&sums[q * value_width + first..][..COLUMNS * lanes]);
        for c in 0..COLUMNS {
            adding[q][c] = before[c];
        }
    }
    let positions = weights[0].len();
    for start in (0..positions).step_by(PAGE) {
        let index = start / PAGE;
        let count = PAGE.min(positions - start);
        let next = if index + 1 < pages.table.len() { pages.values(index + 1) } else { &[] };
        // Slices of equal length need no bounds check per position.
        let shared: [&[f32]; QUERIES] = std::array::from_fn(|q| &weights[q][start..start + count]);
        for (position, value) in (0..count).zip(pages.values(index).chunks_exact(value_width)) {
            for line in (0..COLUMNS * lanes).step_by(LINE) {
                prefetch(next, position * value_width + first + line);
            }
            let (value, _) = S::as_simd_f32s(&value[first..first + COLUMNS * lanes]);
            for q in 0..QUERIES {
                let weight = simd.splat_f32s(shared[q][position]);
                for c in 0..COLUMNS {
                    adding[q][c] = simd.mul_add_f32s(weight, value[c], adding[q][c]);
                }
            }
        }
    }
    for q in 0..QUERIES {
        let (after, _) = S::as_mut_simd_f32s(&mut sums[q * value_width + first..][..COLUMNS * lanes]);
        for c in 0..COLUMNS {
            after[c] = adding[q][c];
        }
    }
    COLUMNS
}

#[cfg(test)]
#[path = "attention_tests.rs"]
mod tests;
