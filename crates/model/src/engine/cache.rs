//! Keys and values of one sequence, and attention of its rows over them.
#![expect(
    clippy::inline_always,
    reason = "code outside of the dispatched function is compiled without its vectors"
)]

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::vector::{exp, maximum};

/// Positions of one block of keys.
pub(super) const BLOCK: usize = 16;
/// Queries that are worked on together; they share the loads of their key/value head.
const TOGETHER: usize = 4;
/// The same where there are 32 registers and so many queries.
const MOST_TOGETHER: usize = 12;

/// Shape of the heads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    pub(super) query_heads: usize,
    pub(super) key_value_heads: usize,
    pub(super) width: usize,
}

impl Heads {
    /// Width of a value row: filled up to whole vectors.
    fn value_width(&self) -> usize {
        self.width.next_multiple_of(BLOCK)
    }
}

/// One layer's keys and values of one sequence.
///
/// Keys: `[block, head, width, 16 positions]`, so that the scores of 16 positions are whole vectors
/// without a sum across lanes. Values: `[position, head, value_width]`. Both grow as the sequence does.
#[derive(Debug, Default)]
pub(super) struct LayerCache {
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl LayerCache {
    /// Elements of a full cache of this many positions.
    pub(super) fn numbers(heads: Heads, positions: usize) -> usize {
        let keys = positions.next_multiple_of(BLOCK) * heads.key_value_heads * heads.width;
        keys + positions * heads.key_value_heads * heads.value_width()
    }

    /// Writes key and value of one position, all heads.
    pub(super) fn write(&mut self, heads: Heads, position: usize, key: &[f32], value: &[f32]) {
        let block_len = heads.key_value_heads * heads.width * BLOCK;
        let position_len = heads.key_value_heads * heads.value_width();
        let block = position / BLOCK * block_len;
        if self.keys.len() < block + block_len {
            self.keys.resize(block + block_len, 0.0);
        }
        let start = position * position_len;
        if self.values.len() < start + position_len {
            self.values.resize(start + position_len, 0.0);
        }
        for (to, &key) in self.keys[block + position % BLOCK..].iter_mut().step_by(BLOCK).zip(key) {
            *to = key;
        }
        let rows = self.values[start..start + position_len].chunks_exact_mut(heads.value_width());
        for (to, value) in rows.zip(value.chunks_exact(heads.width)) {
            to[..heads.width].copy_from_slice(value);
        }
    }

    /// Takes positions over from another sequence with the same tokens up to the end of the range.
    pub(super) fn copy(&mut self, heads: Heads, from: &Self, positions: Range<usize>) {
        let block_len = heads.key_value_heads * heads.width * BLOCK;
        let position_len = heads.key_value_heads * heads.value_width();
        let blocks = positions.start / BLOCK * block_len..positions.end.div_ceil(BLOCK) * block_len;
        if self.keys.len() < blocks.end {
            self.keys.resize(blocks.end, 0.0);
        }
        self.keys[blocks.clone()].copy_from_slice(&from.keys[blocks]);
        let values = positions.start * position_len..positions.end * position_len;
        if self.values.len() < values.end {
            self.values.resize(values.end, 0.0);
        }
        self.values[values.clone()].copy_from_slice(&from.values[values]);
    }
}

/// Attention of rows of one sequence at consecutive positions, each over the positions up to its own:
/// `out = softmax(q k^T / sqrt(width)) v`.
///
/// Rows are worked on together, so that keys and values are loaded once for all of them. A row's numbers are the same bits
/// alone.
pub(super) struct Attention<'a> {
    pub(super) heads: Heads,
    pub(super) cache: &'a LayerCache,
    /// Positions that the first row sees; every row sees one more than the row before it.
    pub(super) len: usize,
    /// Rows of `[query_heads, width]` that start `stride` elements apart.
    pub(super) queries: &'a [f32],
    pub(super) stride: usize,
    /// `[rows, query_heads, width]`.
    pub(super) out: &'a mut [f32],
    pub(super) scores: &'a mut Vec<f32>,
}

impl WithSimd for Attention<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { heads, cache, len, queries, stride, out, scores } = self;
        let group = heads.query_heads / heads.key_value_heads;
        let rows = out.len() / (heads.query_heads * heads.width);
        // Two accumulators a query, and 16 registers where vectors are narrow.
        let wide = S::F32_LANES >= 16;
        for head in 0..heads.key_value_heads {
            let mut first = 0;
            while first < rows * group {
                let part = Part { heads, cache, len, head, queries, stride, first };
                first += match rows * group - first {
                    left if wide && left >= MOST_TOGETHER => {
                        attend::<S, MOST_TOGETHER>(simd, part, out, scores)
                    }
                    1 => attend::<S, 1>(simd, part, out, scores),
                    2 => attend::<S, 2>(simd, part, out, scores),
                    3 => attend::<S, 3>(simd, part, out, scores),
                    _ => attend::<S, TOGETHER>(simd, part, out, scores),
                };
            }
        }
    }
}

/// Queries that share one key/value head: by rows, and in each by query heads.
#[derive(Clone, Copy)]
struct Part<'a> {
    heads: Heads,
    cache: &'a LayerCache,
    len: usize,
    head: usize,
    queries: &'a [f32],
    stride: usize,
    /// The first one that is worked on.
    first: usize,
}

impl Part<'_> {
    /// Row and query head of a query after the first.
    fn place(&self, query: usize) -> (usize, usize) {
        let group = self.heads.query_heads / self.heads.key_value_heads;
        let at = self.first + query;
        (at / group, self.head * group + at % group)
    }
}

/// Works on some queries; returns how many.
#[inline(always)]
fn attend<S: Simd, const QUERIES: usize>(
    simd: S,
    part: Part<'_>,
    out: &mut [f32],
    scratch: &mut Vec<f32>,
) -> usize {
    let width = part.heads.width;
    let lens: [usize; QUERIES] = std::array::from_fn(|q| part.len + part.place(q).0);
    let padded = lens[QUERIES - 1].next_multiple_of(BLOCK);
    if scratch.len() < QUERIES * (padded + width) {
        scratch.resize(QUERIES * (padded + width), 0.0);
    }
    let (scores, rest) = scratch.split_at_mut(QUERIES * padded);
    let packed = &mut rest[..QUERIES * width];
    for q in 0..QUERIES {
        let (row, head) = part.place(q);
        let start = row * part.stride + head * width;
        let pairs = part.queries[start..start + width].chunks_exact(2);
        for (to, pair) in packed.chunks_exact_mut(2 * QUERIES).zip(pairs) {
            to[2 * q..2 * q + 2].copy_from_slice(pair);
        }
    }
    score::<S, QUERIES>(simd, part, packed, scores);

    let mut inverse = [0.0f32; QUERIES];
    for ((scores, inverse), len) in scores.chunks_exact_mut(padded).zip(&mut inverse).zip(lens) {
        let scores = &mut scores[..len.next_multiple_of(BLOCK)];
        // Lanes past the last position hold keys that this query does not see, or of no position of this sequence.
        scores[len..].fill(f32::NEG_INFINITY);
        let max = simd.splat_f32s(maximum(simd, scores));
        let (vectors, _) = S::as_mut_simd_f32s(scores);
        let mut sums = simd.splat_f32s(0.0);
        for score in vectors {
            *score = exp(simd, simd.sub_f32s(*score, max));
            sums = simd.add_f32s(sums, *score);
        }
        *inverse = 1.0 / simd.reduce_sum_f32s(sums);
    }

    let weights = Weights::<QUERIES> { scores, padded, lens, inverse };
    let vectors = part.heads.value_width() / S::F32_LANES;
    let mut vector = 0;
    while vector < vectors {
        // More columns than these would not stay in registers beside so many queries.
        vector += if vectors - vector >= 4 && QUERIES <= TOGETHER {
            weigh::<S, QUERIES, 4>(simd, part, &weights, vector, out)
        } else if vectors - vector >= 2 {
            weigh::<S, QUERIES, 2>(simd, part, &weights, vector, out)
        } else {
            weigh::<S, QUERIES, 1>(simd, part, &weights, vector, out)
        };
    }
    QUERIES
}

/// Scores of all positions, `[QUERIES, padded]`. `packed` has two numbers of every query, then the next two of every query.
#[inline(always)]
fn score<S: Simd, const QUERIES: usize>(simd: S, part: Part<'_>, packed: &[f32], scores: &mut [f32]) {
    let (width, lanes) = (part.heads.width, S::F32_LANES);
    let scale = simd.splat_f32s(1.0 / (width as f32).sqrt());
    let padded = scores.len() / QUERIES;
    let vectors = BLOCK / lanes;
    let block_len = part.heads.key_value_heads * width * BLOCK;
    let blocks = part.cache.keys.chunks_exact(block_len).take(padded / BLOCK);
    for (index, block) in blocks.enumerate() {
        let keys = &block[part.head * width * BLOCK..(part.head + 1) * width * BLOCK];
        let (keys, _) = S::as_simd_f32s(keys);
        for vector in 0..vectors {
            // Two chains per query hide the latency of the multiply-add.
            let mut even = [simd.splat_f32s(0.0); QUERIES];
            let mut odd = [simd.splat_f32s(0.0); QUERIES];
            let (pairs, _) = packed.as_chunks::<2>();
            for (pairs, keys) in pairs.chunks_exact(QUERIES).zip(keys.chunks_exact(2 * vectors)) {
                for q in 0..QUERIES {
                    even[q] = simd.mul_add_f32s(simd.splat_f32s(pairs[q][0]), keys[vector], even[q]);
                    odd[q] = simd.mul_add_f32s(simd.splat_f32s(pairs[q][1]), keys[vectors + vector], odd[q]);
                }
            }
            for q in 0..QUERIES {
                let start = q * padded + index * BLOCK + vector * lanes;
                let (lane, _) = S::as_mut_simd_f32s(&mut scores[start..start + lanes]);
                lane[0] = simd.mul_f32s(simd.add_f32s(even[q], odd[q]), scale);
            }
        }
    }
}

/// Attention weights of queries.
struct Weights<'a, const QUERIES: usize> {
    /// `[QUERIES, padded]`, not yet divided by their sums.
    scores: &'a [f32],
    padded: usize,
    /// Positions that each query sees, in ascending order.
    lens: [usize; QUERIES],
    /// One over the sums.
    inverse: [f32; QUERIES],
}

/// Adds up the values of some columns, from a vector of a head's on; returns how many vectors it did.
#[inline(always)]
fn weigh<S: Simd, const QUERIES: usize, const COLUMNS: usize>(
    simd: S,
    part: Part<'_>,
    weights: &Weights<'_, QUERIES>,
    vector: usize,
    out: &mut [f32],
) -> usize {
    let Part { heads, head, .. } = part;
    let (width, value_width, lanes) = (heads.width, heads.value_width(), S::F32_LANES);
    let position_len = heads.key_value_heads * value_width;
    let first = head * value_width + vector * lanes;
    // Positions that all see, then those that only later rows see.
    let (common, most) = (weights.lens[0], weights.lens[QUERIES - 1]);
    // Slices of one length are not checked at every position.
    let shared: [&[f32]; QUERIES] = std::array::from_fn(|q| &weights.scores[q * weights.padded..][..common]);
    let mut sums = [[simd.splat_f32s(0.0); COLUMNS]; QUERIES];
    for (position, value) in (0..common).zip(part.cache.values.chunks_exact(position_len)) {
        let (value, _) = S::as_simd_f32s(&value[first..first + COLUMNS * lanes]);
        for q in 0..QUERIES {
            let weight = simd.splat_f32s(shared[q][position]);
            for c in 0..COLUMNS {
                sums[q][c] = simd.mul_add_f32s(weight, value[c], sums[q][c]);
            }
        }
    }
    for position in common..most {
        let start = position * position_len + first;
        let (value, _) = S::as_simd_f32s(&part.cache.values[start..start + COLUMNS * lanes]);
        for q in 0..QUERIES {
            if position < weights.lens[q] {
                let weight = simd.splat_f32s(weights.scores[q * weights.padded + position]);
                for c in 0..COLUMNS {
                    sums[q][c] = simd.mul_add_f32s(weight, value[c], sums[q][c]);
                }
            }
        }
    }
    for q in 0..QUERIES {
        let scale = simd.splat_f32s(weights.inverse[q]);
        let (row, query_head) = part.place(q);
        let row = &mut out[(row * heads.query_heads + query_head) * width..][..width];
        for c in 0..COLUMNS {
            let start = ((vector + c) * lanes).min(width);
            let end = (start + lanes).min(width);
            simd.partial_store_f32s(&mut row[start..end], simd.mul_f32s(sums[q][c], scale));
        }
    }
    COLUMNS
}

#[cfg(test)]
mod tests {
    use pulp::Arch;

    use super::*;

    fn number(index: usize) -> f32 {
        ((index * 7919 + 13) % 1000) as f32 / 500.0 - 1.0
    }

    #[test]
    fn attention_equals_its_definition() {
        for (query_heads, key_value_heads, width) in
            [(4, 2, 64), (4, 4, 8), (6, 1, 20), (2, 1, 2), (5, 1, 128)]
        {
            let heads = Heads { query_heads, key_value_heads, width };
            let positions = 37;
            let row = key_value_heads * width;
            let keys: Vec<f32> = (0..positions * row).map(number).collect();
            let values: Vec<f32> = (0..positions * row).map(|index| number(index * 3 + 1)).collect();
            let query: Vec<f32> = (0..query_heads * width).map(|index| number(index * 5 + 2)).collect();
            let mut cache = LayerCache::default();
            for position in 0..positions {
                let at = position * row..(position + 1) * row;
                cache.write(heads, position, &keys[at.clone()], &values[at]);
            }
            let mut copied = LayerCache::default();
            copied.copy(heads, &cache, 0..16);
            copied.copy(heads, &cache, 16..35);
            for arch in [Arch::new(), Arch::Scalar] {
                for len in [1, 15, 16, 17, 35] {
                    let mut out = vec![0.0; query.len()];
                    let mut scores = vec![f32::NAN; 3];
                    let mut run = |cache: &LayerCache, out: &mut [f32]| {
                        let scores = &mut scores;
                        let (queries, stride) = (&query[..], query.len());
                        arch.dispatch(Attention { heads, cache, len, queries, stride, out, scores });
                    };
                    run(&cache, &mut out);
                    let mut again = vec![0.0; query.len()];
                    run(&copied, &mut again);
                    assert_eq!(out, again);
                    for head in 0..query_heads {
                        let shared = head / (query_heads / key_value_heads) * width;
                        let weights: Vec<f64> = (0..len)
                            .map(|position| {
                                let dot: f64 = (0..width)
                                    .map(|d| {
                                        f64::from(query[head * width + d] * keys[position * row + shared + d])
                                    })
                                    .sum();
                                (dot / (width as f64).sqrt()).exp()
                            })
                            .collect();
                        let total: f64 = weights.iter().sum();
                        for d in 0..width {
                            let exact: f64 = weights
                                .iter()
                                .enumerate()
                                .map(|(position, weight)| {
                                    weight * f64::from(values[position * row + shared + d])
                                })
                                .sum::<f64>()
                                / total;
                            assert!((f64::from(out[head * width + d]) - exact).abs() < 2e-6);
                        }
                    }
                }
            }
        }
    }
    #[test]
    fn rows_together_are_the_bits_of_each_alone() {
        for (query_heads, key_value_heads, width) in
            [(4, 2, 64), (9, 3, 64), (6, 1, 20), (7, 1, 128), (2, 2, 2)]
        {
            let heads = Heads { query_heads, key_value_heads, width };
            let row = key_value_heads * width;
            let mut cache = LayerCache::default();
            for position in 0..50 {
                let key: Vec<f32> = (0..row).map(|index| number(position * row + index)).collect();
                let value: Vec<f32> = (0..row).map(|index| number(position * row + index * 3 + 1)).collect();
                cache.write(heads, position, &key, &value);
            }
            let wide = query_heads * width;
            let stride = wide + 5;
            for (len, rows) in [(1, 3), (14, 9), (16, 1), (17, 5), (31, 19)] {
                let queries: Vec<f32> = (0..rows * stride).map(|index| number(index * 5 + 2)).collect();
                for arch in [Arch::new(), Arch::Scalar] {
                    let run = |len: usize, queries: &[f32], out: &mut [f32]| {
                        let (cache, scores) = (&cache, &mut vec![f32::NAN; 3]);
                        arch.dispatch(Attention { heads, cache, len, queries, stride, out, scores });
                    };
                    let mut together = vec![0.0; rows * wide];
                    run(len, &queries, &mut together);
                    for (index, expected) in together.chunks_exact(wide).enumerate() {
                        let mut alone = vec![0.0; wide];
                        run(len + index, &queries[index * stride..], &mut alone);
                        assert_eq!(alone, expected, "{heads:?}, {len} + {index}");
                        // The comparison notices a row that sees another position.
                        run(len + index + 1, &queries[index * stride..], &mut alone);
                        assert_ne!(alone, expected);
                    }
                }
            }
        }
    }
}
