//! Attention inside windows of patches: every patch sees all patches of its window. Forward and backward.
//!
//! Rows of `qkv` are `[queries | keys | values]`. Backward computes the probabilities again, so that nothing of
//! the size of a window squared is kept.

use std::ops::Range;

use crate::Real;
use crate::head::grow;
use crate::layers::{Accumulate, View, ViewMut, matmul, softmax_rows, softmax_rows_backward};

/// Queries that are worked on at a time.
const QUERIES: usize = 128;

/// Heads and windows of an attention.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows<'a> {
    pub(super) heads: usize,
    /// Width of one head.
    pub(super) width: usize,
    /// Rows of each window.
    pub(super) rows: &'a [Range<usize>],
}

/// Two blocks of scores.
#[derive(Debug, Default)]
pub(super) struct Scratch<T> {
    scores: Vec<T>,
    derivatives: Vec<T>,
}

/// A block of queries of one head and window.
#[derive(Clone, Copy)]
struct Block {
    /// Offset of the head's first query in `qkv`, of its window's first key and value, and in the output.
    query: usize,
    key: usize,
    value: usize,
    out: usize,
    count: usize,
    length: usize,
}

impl Windows<'_> {
    fn hidden(&self) -> usize {
        self.heads * self.width
    }

    fn blocks(&self) -> impl Iterator<Item = Block> {
        let (hidden, width) = (self.hidden(), self.width);
        self.rows.iter().flat_map(move |rows| {
            (0..self.heads).flat_map(move |head| {
                (rows.start..rows.end).step_by(QUERIES).map(move |first| Block {
                    query: first * 3 * hidden + head * width,
                    key: rows.start * 3 * hidden + hidden + head * width,
                    value: rows.start * 3 * hidden + 2 * hidden + head * width,
                    out: first * hidden + head * width,
                    count: QUERIES.min(rows.end - first),
                    length: rows.len(),
                })
            })
        })
    }

    /// Leaves the probabilities of a block in `scores`.
    fn probabilities<T: Real>(&self, block: Block, qkv: &[T], scores: &mut [T]) {
        let (stride, width) = (3 * self.hidden(), self.width);
        let scale = T::from_f64(1.0 / (width as f64).sqrt());
        let query = View::strided(&qkv[block.query..], block.count, width, stride);
        let key = View::strided(&qkv[block.key..], block.length, width, stride);
        matmul(ViewMut::new(scores, block.count, block.length), query, key.t(), Accumulate::Set, scale);
        softmax_rows(scores, block.length);
    }

    /// `out = softmax(Q K^T / sqrt(width)) V`.
    pub(super) fn forward<T: Real>(&self, qkv: &[T], out: &mut [T], scratch: &mut Scratch<T>) {
        let (hidden, width) = (self.hidden(), self.width);
        for block in self.blocks() {
            grow(&mut scratch.scores, block.count * block.length);
            let scores = &mut scratch.scores[..block.count * block.length];
            self.probabilities(block, qkv, scores);
            let value = View::strided(&qkv[block.value..], block.length, width, 3 * hidden);
            let out = ViewMut::strided(&mut out[block.out..], block.count, width, hidden);
            matmul(out, View::new(scores, block.count, block.length), value, Accumulate::Set, T::ONE);
        }
    }

    /// Adds to `d_qkv` the derivative of [`Windows::forward`].
    pub(super) fn backward<T: Real>(
        &self,
        qkv: &[T],
        d_out: &[T],
        d_qkv: &mut [T],
        scratch: &mut Scratch<T>,
    ) {
        let (hidden, width) = (self.hidden(), self.width);
        let stride = 3 * hidden;
        let scale = T::from_f64(1.0 / (width as f64).sqrt());
        for block in self.blocks() {
            let Block { query, key, value, count, length, .. } = block;
            grow(&mut scratch.scores, count * length);
            grow(&mut scratch.derivatives, count * length);
            let scores = &mut scratch.scores[..count * length];
            let d_scores = &mut scratch.derivatives[..count * length];
            self.probabilities(block, qkv, scores);
            let d_out = View::strided(&d_out[block.out..], count, width, hidden);
            let values = View::strided(&qkv[value..], length, width, stride);
            matmul(ViewMut::new(d_scores, count, length), d_out, values.t(), Accumulate::Set, T::ONE);
            let d_values = ViewMut::strided(&mut d_qkv[value..], length, width, stride);
            matmul(d_values, View::new(scores, count, length).t(), d_out, Accumulate::Add, T::ONE);
            softmax_rows_backward(scores, d_scores, length);
            let d_scores = View::new(d_scores, count, length);
            let keys = View::strided(&qkv[key..], length, width, stride);
            let d_queries = ViewMut::strided(&mut d_qkv[query..], count, width, stride);
            matmul(d_queries, d_scores, keys, Accumulate::Add, scale);
            let queries = View::strided(&qkv[query..], count, width, stride);
            let d_keys = ViewMut::strided(&mut d_qkv[key..], length, width, stride);
            matmul(d_keys, d_scores.t(), queries, Accumulate::Add, scale);
        }
    }
}
