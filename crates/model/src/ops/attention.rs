//! Causal grouped-query attention over packed sequences, by blocks of queries.
//!
//! Of each row only the logarithm of its softmax denominator is kept; backward makes the
//! probabilities anew from it (Dao et al. (2022), "FlashAttention"). Differs from the paper: a block
//! holds all keys before it, so scratch memory is `QUERY_BLOCK x longest sequence`.

use super::Real;
use super::dispatch::{LANES, dot, fold, maximum, vectorised};
use super::linear::{Into, View, ViewMut, matmul};

/// Queries that are worked on at a time.
const QUERY_BLOCK: usize = 64;

/// Heads of an attention layer. Rows of `qkv` are `[queries | keys | values]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    /// Query heads.
    pub(crate) queries: usize,
    /// Key/value heads; query heads share them in equal runs.
    pub(crate) keys: usize,
    /// Width of one head.
    pub(crate) width: usize,
}

impl Heads {
    /// Width of a row of `qkv`.
    pub(crate) fn row(&self) -> usize {
        (self.queries + 2 * self.keys) * self.width
    }

    /// Where the query, key and value of a query head start in a row.
    fn places(&self, head: usize) -> [usize; 3] {
        let shared = head / (self.queries / self.keys);
        [
            head * self.width,
            (self.queries + shared) * self.width,
            (self.queries + self.keys + shared) * self.width,
        ]
    }

    fn scale<T: Real>(&self) -> T {
        T::from_f64(1.0 / (self.width as f64).sqrt())
    }
}

/// Two score blocks and one number per query of a block; grows to what the longest sequence needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch<T> {
    scores: Vec<T>,
    derivatives: Vec<T>,
}

impl<T: Real> Scratch<T> {
    fn blocks(&mut self, length: usize) -> (&mut [T], &mut [T]) {
        let needed = QUERY_BLOCK * length;
        if self.scores.len() < needed {
            self.scores.resize(needed, T::ZERO);
            self.derivatives.resize(needed, T::ZERO);
        }
        (&mut self.scores, &mut self.derivatives)
    }
}

/// `out = softmax(Q K^T / sqrt(width)) V` for one sequence of `length` rows.
///
/// `out` is `[length, queries * width]`; `log_sum` `[length, queries]` keeps the logarithm of each
/// row's softmax denominator.
pub(crate) fn attention<T: Real>(
    heads: Heads,
    length: usize,
    qkv: &[T],
    out: &mut [T],
    log_sum: &mut [T],
    scratch: &mut Scratch<T>,
) {
    let (row, width) = (heads.row(), heads.width);
    let out_row = heads.queries * width;
    let (scores, _) = scratch.blocks(length);
    for head in 0..heads.queries {
        let [query, key, value] = heads.places(head);
        for first in (0..length).step_by(QUERY_BLOCK) {
            let count = QUERY_BLOCK.min(length - first);
            let seen = first + count;
            let scores = &mut scores[..count * seen];
            matmul(
                ViewMut::new(scores, count, seen),
                View::strided(&qkv[first * row + query..], count, width, row),
                View::strided(&qkv[key..], seen, width, row).t(),
                Into::Set,
                heads.scale(),
            );
            vectorised(|| {
                for (index, scores) in scores.chunks_exact_mut(seen).enumerate() {
                    let (scores, masked) = scores.split_at_mut(first + index + 1);
                    log_sum[(first + index) * heads.queries + head] = softmax(scores);
                    masked.fill(T::ZERO);
                }
            });
            matmul(
                ViewMut::strided(&mut out[first * out_row + head * width..], count, width, out_row),
                View::new(scores, count, seen),
                View::strided(&qkv[value..], seen, width, row),
                Into::Set,
                T::ONE,
            );
        }
    }
}

/// Softmax in place; returns the logarithm of the denominator.
#[inline(always)]
fn softmax<T: Real>(scores: &mut [T]) -> T {
    let max = maximum(scores);
    let mut lanes = [T::ZERO; LANES];
    let (chunks, rest) = scores.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            chunk[lane] = (chunk[lane] - max).exp();
            lanes[lane] += chunk[lane];
        }
    }
    for (lane, score) in rest.iter_mut().enumerate() {
        *score = (*score - max).exp();
        lanes[lane] += *score;
    }
    let sum = fold(lanes);
    let inverse = T::ONE / sum;
    for score in scores {
        *score *= inverse;
    }
    max + sum.ln()
}

/// Writes the derivative of [`attention`] with respect to `qkv` to `d_qkv`.
///
/// With `P` the probabilities and `D_t = dO_t . O_t`: `dV = P^T dO`, `dP = dO V^T`,
/// `dS = P (dP - D)`, `dQ = dS K / sqrt(width)`, `dK = dS^T Q / sqrt(width)`.
pub(crate) fn attention_backward<T: Real>(
    heads: Heads,
    length: usize,
    qkv: &[T],
    (out, d_out): (&[T], &[T]),
    log_sum: &[T],
    d_qkv: &mut [T],
    scratch: &mut Scratch<T>,
) {
    let (row, width) = (heads.row(), heads.width);
    let out_row = heads.queries * width;
    let (scores, derivatives) = scratch.blocks(length);
    d_qkv.fill(T::ZERO);
    for head in 0..heads.queries {
        let [query, key, value] = heads.places(head);
        let of_head = head * width;
        for first in (0..length).step_by(QUERY_BLOCK) {
            let count = QUERY_BLOCK.min(length - first);
            let seen = first + count;
            let scores = &mut scores[..count * seen];
            let derivatives = &mut derivatives[..count * seen];
            let queries = View::strided(&qkv[first * row + query..], count, width, row);
            let keys = View::strided(&qkv[key..], seen, width, row);
            let values = View::strided(&qkv[value..], seen, width, row);
            let d_out_rows = View::strided(&d_out[first * out_row + of_head..], count, width, out_row);
            matmul(ViewMut::new(scores, count, seen), queries, keys.t(), Into::Set, heads.scale());
            matmul(ViewMut::new(derivatives, count, seen), d_out_rows, values.t(), Into::Set, T::ONE);
            vectorised(|| {
                let rows = scores.chunks_exact_mut(seen).zip(derivatives.chunks_exact_mut(seen));
                for (index, (scores, derivatives)) in rows.enumerate() {
                    let at = first + index;
                    let place = at * out_row + of_head..at * out_row + of_head + width;
                    let pull = dot(&out[place.clone()], &d_out[place]);
                    let log_sum = log_sum[at * heads.queries + head];
                    let (scores, masked) = scores.split_at_mut(at + 1);
                    let (derivatives, d_masked) = derivatives.split_at_mut(at + 1);
                    for (score, derivative) in scores.iter_mut().zip(derivatives) {
                        let probability = (*score - log_sum).exp();
                        *score = probability;
                        *derivative = probability * (*derivative - pull);
                    }
                    masked.fill(T::ZERO);
                    d_masked.fill(T::ZERO);
                }
            });
            let probabilities = View::new(scores, count, seen);
            let derivatives = View::new(derivatives, count, seen);
            let d_values = ViewMut::strided(&mut d_qkv[value..], seen, width, row);
            matmul(d_values, probabilities.t(), d_out_rows, Into::Add, T::ONE);
            let d_queries = ViewMut::strided(&mut d_qkv[first * row + query..], count, width, row);
            matmul(d_queries, derivatives, keys, Into::Set, heads.scale());
            let d_keys = ViewMut::strided(&mut d_qkv[key..], seen, width, row);
            matmul(d_keys, derivatives.t(), queries, Into::Add, heads.scale());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_gradient, random};
    use super::*;

    /// By the definition, a row at a time.
    fn definition(heads: Heads, length: usize, qkv: &[f64]) -> Vec<f64> {
        let (row, width) = (heads.row(), heads.width);
        let mut out = Vec::new();
        for at in 0..length {
            for head in 0..heads.queries {
                let [query, key, value] = heads.places(head);
                let weights: Vec<f64> = (0..=at)
                    .map(|other| {
                        let score: f64 =
                            (0..width).map(|i| qkv[at * row + query + i] * qkv[other * row + key + i]).sum();
                        (score / (width as f64).sqrt()).exp()
                    })
                    .collect();
                let sum: f64 = weights.iter().sum();
                for i in 0..width {
                    let mixed: f64 =
                        weights.iter().enumerate().map(|(other, w)| w * qkv[other * row + value + i]).sum();
                    out.push(mixed / sum);
                }
            }
        }
        out
    }

    #[test]
    fn forward_is_the_definition_and_backward_its_derivative() {
        // More than one block, with grouped, multi-query and plain heads.
        for (queries, keys, length) in [(4, 2, 70), (3, 1, 5), (2, 2, 129), (1, 1, 1)] {
            let heads = Heads { queries, keys, width: 6 };
            let (qkv, d_out) =
                (random(1, length * heads.row()), random(2, length * heads.queries * heads.width));
            let mut scratch = Scratch::default();
            let mut forward = |qkv: &[f64]| {
                let (mut out, mut log_sum) = (vec![0.0; d_out.len()], vec![0.0; length * queries]);
                attention(heads, length, qkv, &mut out, &mut log_sum, &mut scratch);
                (out, log_sum)
            };
            let (out, log_sum) = forward(&qkv);
            for (out, exact) in out.iter().zip(definition(heads, length, &qkv)) {
                assert!((out - exact).abs() < 1e-12);
            }
            let mut d_qkv = vec![f64::NAN; qkv.len()];
            attention_backward(
                heads,
                length,
                &qkv,
                (&out, &d_out),
                &log_sum,
                &mut d_qkv,
                &mut Scratch::default(),
            );
            check_gradient("qkv", &qkv, &d_qkv, |qkv| {
                forward(qkv).0.iter().zip(&d_out).map(|(y, d)| y * d).sum()
            });
        }
    }
}
