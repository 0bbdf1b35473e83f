//! Causal grouped-query attention over packed sequences, in blocks of queries.
//!
//! Only the log of each row's softmax denominator is stored, from which the backward pass
//! recomputes the probabilities (Dao et al. (2022), "FlashAttention"). Unlike in the paper, a block
//! of queries attends to all earlier keys at once, so scratch memory is
//! `QUERY_BLOCK x longest sequence`.

mod place;

use super::Real;
use super::bf16::{self, Kernel};
use super::dispatch::{LANES, Loop, add_assign, dot, vectorised};
use super::linear::{Accumulate, View, ViewMut, matmul};
use super::softmax::softmax;
use crate::ModelConfig;
use crate::ops::grow;

use place::key_values;
pub(crate) use place::{Derivatives, KeyValues, Place};

const QUERY_BLOCK: usize = 64;

/// A layer's attention heads. Rows of `qkv` are `[queries | keys | values]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    pub(crate) queries: usize,
    /// Number of key/value heads, each shared by [`Heads::group`] consecutive query heads.
    pub(crate) keys: usize,
    pub(crate) width: usize,
}

impl Heads {
    pub(crate) fn of(config: &ModelConfig) -> Self {
        Self { queries: config.num_attention_heads, keys: config.num_key_value_heads, width: config.head_dim }
    }

    pub(crate) fn group(&self) -> usize {
        self.queries / self.keys
    }

    pub(crate) fn row(&self) -> usize {
        (self.queries + 2 * self.keys) * self.width
    }

    pub(in crate::ops) fn offsets(&self, head: usize) -> [usize; 3] {
        let shared = head / self.group();
        [
            head * self.width,
            (self.queries + shared) * self.width,
            (self.queries + self.keys + shared) * self.width,
        ]
    }

    pub(in crate::ops) fn scale<T: Real>(&self) -> T {
        T::from_f64(1.0 / (self.width as f64).sqrt())
    }

    pub(crate) fn query_width(&self) -> usize {
        self.queries * self.width
    }

    fn gathered(&self) -> usize {
        2 * self.keys * self.width
    }
}

/// Buffers that grow with the longest sequence.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch<T> {
    scores: Vec<T>,
    derivatives: Vec<T>,
    keys: Vec<T>,
    values: Vec<T>,
    /// Two buffers for a path and the rows after it: keys and values, and their gradients.
    gathered: [Vec<T>; 2],
    bf16: bf16::attention::Scratch,
}

impl<T: Real> Scratch<T> {
    /// Returns the number of scratch elements for sequences of up to `length` rows.
    pub(crate) fn numbers(config: &ModelConfig, length: usize, paths: bool) -> usize {
        let gathered = if paths { 2 * config.key_value_width() } else { 0 };
        2 * length * (QUERY_BLOCK + config.head_dim + gathered)
    }

    fn resize(&mut self, heads: Heads, length: usize) {
        for (buffer, needed) in [
            (&mut self.scores, QUERY_BLOCK * length),
            (&mut self.derivatives, QUERY_BLOCK * length),
            (&mut self.keys, heads.width * length),
            (&mut self.values, heads.width * length),
        ] {
            grow(buffer, needed);
        }
    }
}

/// Transposes `width` columns of `rows`, with row stride `stride`, to `[width, length]`. One
/// transposition serves all blocks of queries.
fn transpose<T: Real>(rows: &[T], stride: usize, width: usize, length: usize, to: &mut [T]) {
    // Whole cache lines of the destination at a time.
    for first in (0..length).step_by(LANES) {
        let count = LANES.min(length - first);
        for column in 0..width {
            let line = &mut to[column * length + first..][..count];
            for (index, to) in line.iter_mut().enumerate() {
                *to = rows[(first + index) * stride + column];
            }
        }
    }
}

/// Computes `out = softmax(Q K^T / sqrt(width)) V` for the queries of a `Place`. If a kernel is
/// given, `f32` products run in bf16.
///
/// `qkv`, `out` (`[rows, queries * width]`) and `log_sum` (`[rows, queries]`, the softmax
/// denominator's log) span the micro-batch; only the rows of `place` are written.
pub(crate) fn attention<T: Real>(
    bf16: Option<Kernel>,
    heads: Heads,
    place: &Place<'_>,
    qkv: &[T],
    out: &mut [T],
    log_sum: &mut [T],
    scratch: &mut Scratch<T>,
) {
    let length = place.rows.len();
    if length == 0 {
        return;
    }
    let (row, out_row) = (heads.row(), heads.query_width());
    let out = &mut out[place.rows.start * out_row..place.rows.end * out_row];
    let log_sum = &mut log_sum[place.rows.start * heads.queries..place.rows.end * heads.queries];
    let mut gathered = std::mem::take(&mut scratch.gathered[0]);
    let seen_by_all = key_values(heads, place, qkv, &mut gathered);
    let qkv = &qkv[place.rows.start * row..place.rows.end * row];
    if let (Some(kernel), Some(qkv), Some(key_values), Some(out), Some(log_sum)) =
        (bf16, T::f32s(qkv), seen_by_all.f32s(), T::f32s_mut(out), T::f32s_mut(log_sum))
    {
        bf16::attention::forward(kernel, heads, qkv, key_values, out, log_sum, &mut scratch.bf16);
    } else {
        forward(heads, qkv, seen_by_all, out, log_sum, scratch);
    }
    scratch.gathered[0] = gathered;
}

fn forward<T: Real>(
    heads: Heads,
    qkv: &[T],
    key_values: KeyValues<'_, T>,
    out: &mut [T],
    log_sum: &mut [T],
    scratch: &mut Scratch<T>,
) {
    let (row, width) = (heads.row(), heads.width);
    let out_row = heads.query_width();
    let KeyValues { stride, before, length: total, .. } = key_values;
    let length = total - before;
    scratch.resize(heads, total);
    let Scratch { scores, keys, .. } = scratch;
    for head in 0..heads.queries {
        let [query, key, value] = heads.offsets(head);
        if head.is_multiple_of(heads.queries / heads.keys) {
            transpose(key_values.column(key), stride, width, total, keys);
        }
        for first in (0..length).step_by(QUERY_BLOCK) {
            let count = QUERY_BLOCK.min(length - first);
            let seen = before + first + count;
            let scores = &mut scores[..count * seen];
            matmul(
                ViewMut::new(scores, count, seen),
                View::strided(&qkv[first * row + query..], count, width, row),
                View::strided(keys, width, seen, total),
                Accumulate::Set,
                heads.scale(),
            );
            let log_sum = &mut log_sum[first * heads.queries + head..];
            vectorised(SoftmaxRows, (&mut *scores, seen, before + first, log_sum, heads.queries));
            matmul(
                ViewMut::strided(&mut out[first * out_row + head * width..], count, width, out_row),
                View::new(scores, count, seen),
                View::strided(key_values.column(value), seen, width, stride),
                Accumulate::Set,
                T::ONE,
            );
        }
    }
}

struct SoftmaxRows;

impl<T: Real> Loop<(&mut [T], usize, usize, &mut [T], usize)> for SoftmaxRows {
    type Output = ();
    #[inline(always)]
    fn run((scores, seen, first, log_sum, stride): (&mut [T], usize, usize, &mut [T], usize)) {
        for (index, scores) in scores.chunks_exact_mut(seen).enumerate() {
            let (scores, masked) = scores.split_at_mut(first + index + 1);
            log_sum[index * stride] = softmax(scores);
            masked.fill(T::ZERO);
        }
    }
}

struct BackwardBlock<'a, T> {
    /// Scores, overwritten with probabilities.
    scores: &'a mut [T],
    /// Gradients of the probabilities, overwritten with the gradients of the scores.
    derivatives: &'a mut [T],
    out: &'a [T],
    d_out: &'a [T],
    log_sum: &'a [T],
    heads: Heads,
    first: usize,
    seen: usize,
}

struct BackwardRows;

impl<T: Real> Loop<BackwardBlock<'_, T>> for BackwardRows {
    type Output = ();

    #[inline(always)]
    fn run(block: BackwardBlock<'_, T>) {
        let (queries, width) = (block.heads.queries, block.heads.width);
        let rows =
            block.scores.chunks_exact_mut(block.seen).zip(block.derivatives.chunks_exact_mut(block.seen));
        for (index, (scores, derivatives)) in rows.enumerate() {
            let range = index * queries * width..index * queries * width + width;
            let pull = dot(&block.out[range.clone()], &block.d_out[range]);
            let log_sum = block.log_sum[index * queries];
            let (scores, masked) = scores.split_at_mut(block.first + index + 1);
            let (derivatives, d_masked) = derivatives.split_at_mut(block.first + index + 1);
            for (score, derivative) in scores.iter_mut().zip(derivatives) {
                let probability = (*score - log_sum).exp();
                *score = probability;
                *derivative = probability * (*derivative - pull);
            }
            masked.fill(T::ZERO);
            d_masked.fill(T::ZERO);
        }
    }
}

pub(crate) struct Output<'a, T> {
    pub(crate) out: &'a [T],
    /// Gradient of the computed rows of `out`.
    pub(crate) d_out: &'a [T],
    pub(crate) log_sum: &'a [T],
}

/// Computes the gradient of [`attention`] with respect to `qkv`. Overwrites query gradients in
/// `d_qkv`, and adds key and value gradients for all rows attended to.
///
/// With `P` the probabilities and `D_t = sum(dO_t O_t)`: `dV = P^T dO`, `dP = dO V^T`,
/// `dS = P (dP - D)`, `dQ = dS K / sqrt(width)`, `dK = dS^T Q / sqrt(width)`.
pub(crate) fn attention_backward<T: Real>(
    bf16: Option<Kernel>,
    heads: Heads,
    place: &Place<'_>,
    qkv: &[T],
    output: &Output<'_, T>,
    d_qkv: &mut [T],
    scratch: &mut Scratch<T>,
) {
    if place.rows.is_empty() {
        return;
    }
    let (row, out_row) = (heads.row(), heads.query_width());
    let [mut gathered, mut d_gathered] = std::mem::take(&mut scratch.gathered);
    let key_values = key_values(heads, place, qkv, &mut gathered);
    let own = place.rows.start * row..place.rows.end * row;
    let output = Output {
        out: &output.out[place.rows.start * out_row..place.rows.end * out_row],
        d_out: output.d_out,
        log_sum: &output.log_sum[place.rows.start * heads.queries..place.rows.end * heads.queries],
    };
    let of_all = if key_values.before > 0 {
        grow(&mut d_gathered, key_values.length * key_values.stride);
        let of_all = &mut d_gathered[..key_values.length * key_values.stride];
        of_all.fill(T::ZERO);
        Some(of_all)
    } else {
        None
    };
    let to = Derivatives { own: &mut d_qkv[own.clone()], gathered: of_all };
    backward_of(bf16, heads, &qkv[own], key_values, &output, to, scratch);
    if key_values.before > 0 {
        let rows = place.path.iter().cloned().flatten().chain(place.rows.clone());
        for (from, to) in d_gathered.chunks_exact(heads.gathered()).zip(rows) {
            add_assign(&mut d_qkv[to * row + out_row..(to + 1) * row], from);
        }
    }
    scratch.gathered = [gathered, d_gathered];
}

fn backward_of<T: Real>(
    bf16: Option<Kernel>,
    heads: Heads,
    qkv: &[T],
    key_values: KeyValues<'_, T>,
    output: &Output<'_, T>,
    mut to: Derivatives<'_, T>,
    scratch: &mut Scratch<T>,
) {
    let Output { out, d_out, log_sum } = *output;
    if let (Some(kernel), Some(qkv), Some(key_values), Some(out), Some(d_out)) =
        (bf16, T::f32s(qkv), key_values.f32s(), T::f32s(out), T::f32s(d_out))
        && let (Some(log_sum), Some(to)) = (T::f32s(log_sum), to.f32s())
    {
        let scratch = &mut scratch.bf16;
        let output = Output { out, d_out, log_sum };
        bf16::attention::backward(kernel, heads, qkv, key_values, &output, to, scratch);
        return;
    }
    let (row, width) = (heads.row(), heads.width);
    let out_row = heads.query_width();
    let KeyValues { stride, before, length: total, .. } = key_values;
    let length = total - before;
    scratch.resize(heads, total);
    let Scratch { scores, derivatives, keys: keys_transposed, values: values_transposed, .. } = scratch;
    for head in 0..heads.queries {
        let [query, key, value] = heads.offsets(head);
        if head.is_multiple_of(heads.queries / heads.keys) {
            transpose(key_values.column(key), stride, width, total, keys_transposed);
            transpose(key_values.column(value), stride, width, total, values_transposed);
        }
        let of_head = head * width;
        for first in (0..length).step_by(QUERY_BLOCK) {
            let count = QUERY_BLOCK.min(length - first);
            let seen = before + first + count;
            let scores = &mut scores[..count * seen];
            let derivatives = &mut derivatives[..count * seen];
            let queries = View::strided(&qkv[first * row + query..], count, width, row);
            let keys = View::strided(key_values.column(key), seen, width, stride);
            let keys_transposed = View::strided(keys_transposed, width, seen, total);
            let values_transposed = View::strided(values_transposed, width, seen, total);
            let d_out_rows = View::strided(&d_out[first * out_row + of_head..], count, width, out_row);
            matmul(
                ViewMut::new(scores, count, seen),
                queries,
                keys_transposed,
                Accumulate::Set,
                heads.scale(),
            );
            matmul(
                ViewMut::new(derivatives, count, seen),
                d_out_rows,
                values_transposed,
                Accumulate::Set,
                T::ONE,
            );
            let block = BackwardBlock {
                scores: &mut *scores,
                derivatives: &mut *derivatives,
                out: &out[first * out_row + of_head..],
                d_out: &d_out[first * out_row + of_head..],
                log_sum: &log_sum[first * heads.queries + head..],
                heads,
                first: before + first,
                seen,
            };
            vectorised(BackwardRows, block);
            let probabilities = View::new(scores, count, seen);
            let derivatives = View::new(derivatives, count, seen);
            let (d_values, d_stride) = to.column(heads, value);
            let d_values = ViewMut::strided(d_values, seen, width, d_stride);
            matmul(d_values, probabilities.t(), d_out_rows, Accumulate::Add, T::ONE);
            let d_queries = ViewMut::strided(&mut to.own[first * row + query..], count, width, row);
            matmul(d_queries, derivatives, keys, Accumulate::Set, heads.scale());
            let (d_keys, d_stride) = to.column(heads, key);
            let d_keys = ViewMut::strided(d_keys, seen, width, d_stride);
            matmul(d_keys, derivatives.t(), queries, Accumulate::Add, heads.scale());
        }
    }
}

#[cfg(test)]
pub(in crate::ops) mod tests;
