//! Attention inside windows: every patch attends to all patches in its window.
//!
//! Rows of `qkv` are `[queries | keys | values]`. The backward pass recomputes the probabilities,
//! so memory is not quadratic in the window size.

use std::ops::Range;

use rayon::prelude::*;

use super::split::WORTH_A_THREAD;
use crate::Real;
use crate::layers::{Accumulate, View, ViewMut, add_assign, matmul, softmax_rows, softmax_rows_backward};
use crate::ops::grow;

const QUERIES: usize = 128;

#[derive(Clone, Copy, Debug)]
pub(super) struct Windows<'a> {
    pub(super) heads: usize,
    pub(super) width: usize,
    pub(super) rows: &'a [Range<usize>],
}

#[derive(Clone, Copy)]
struct Block {
    /// Offsets of the head's first query, key, value and output.
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

    fn work(&self) -> usize {
        self.rows.iter().map(|rows| rows.len() * rows.len() * self.hidden()).sum()
    }

    fn starts(&self) -> impl Iterator<Item = (usize, &Range<usize>)> {
        self.rows.iter().flat_map(|rows| rows.clone().step_by(QUERIES).map(move |first| (first, rows)))
    }

    fn block(&self, head: usize, first: usize, rows: &Range<usize>) -> Block {
        let (hidden, width) = (self.hidden(), self.width);
        Block {
            query: first * 3 * hidden + head * width,
            key: rows.start * 3 * hidden + hidden + head * width,
            value: rows.start * 3 * hidden + 2 * hidden + head * width,
            out: first * hidden + head * width,
            count: QUERIES.min(rows.end - first),
            length: rows.len(),
        }
    }

    fn probabilities<T: Real>(&self, block: Block, qkv: &[T], scores: &mut [T]) {
        let (stride, width) = (3 * self.hidden(), self.width);
        let scale = T::from_f64(1.0 / (width as f64).sqrt());
        let query = View::strided(&qkv[block.query..], block.count, width, stride);
        let key = View::strided(&qkv[block.key..], block.length, width, stride);
        matmul(ViewMut::new(scores, block.count, block.length), query, key.t(), Accumulate::Set, scale);
        softmax_rows(scores, block.length);
    }

    /// Computes `out = softmax(Q K^T / sqrt(width)) V`. For large images, the queries are split
    /// over threads.
    pub(super) fn forward<T: Real>(&self, qkv: &[T], out: &mut [T], scores: &mut Vec<T>) {
        let hidden = self.hidden();
        let mut jobs = Vec::new();
        // Windows are adjacent, so a block's rows are contiguous.
        let mut rest = out;
        for (first, rows) in self.starts() {
            let (own, after) = rest.split_at_mut(QUERIES.min(rows.end - first) * hidden);
            jobs.push((first, rows, own));
            rest = after;
        }
        if self.work() < WORTH_A_THREAD {
            for (first, rows, own) in jobs {
                self.forward_rows(qkv, first, rows, own, scores);
            }
        } else {
            jobs.into_par_iter().for_each_init(Vec::new, |scores, (first, rows, own)| {
                self.forward_rows(qkv, first, rows, own, scores);
            });
        }
    }

    fn forward_rows<T: Real>(
        &self,
        qkv: &[T],
        first: usize,
        rows: &Range<usize>,
        out: &mut [T],
        scores: &mut Vec<T>,
    ) {
        let (hidden, width) = (self.hidden(), self.width);
        for head in 0..self.heads {
            let block = self.block(head, first, rows);
            grow(scores, block.count * block.length);
            let scores = &mut scores[..block.count * block.length];
            self.probabilities(block, qkv, scores);
            let value = View::strided(&qkv[block.value..], block.length, width, 3 * hidden);
            let out = ViewMut::strided(&mut out[head * width..], block.count, width, hidden);
            matmul(out, View::new(scores, block.count, block.length), value, Accumulate::Set, T::ONE);
        }
    }

    /// Adds the gradient of [`Windows::forward`] to `d_qkv`. For large images, the heads are split
    /// over threads.
    pub(super) fn backward<T: Real>(&self, qkv: &[T], d_out: &[T], d_qkv: &mut [T]) {
        let (hidden, width) = (self.hidden(), self.width);
        let heads = 0..self.heads;
        let parts: Vec<Vec<T>> = if self.work() < WORTH_A_THREAD {
            heads.map(|head| self.backward_head(head, qkv, d_out)).collect()
        } else {
            heads.into_par_iter().map(|head| self.backward_head(head, qkv, d_out)).collect()
        };
        for (head, part) in parts.iter().enumerate() {
            for (row, to) in part.chunks_exact(3 * width).zip(d_qkv.chunks_exact_mut(3 * hidden)) {
                for (index, values) in row.chunks_exact(width).enumerate() {
                    add_assign(&mut to[index * hidden + head * width..][..width], values);
                }
            }
        }
    }

    fn backward_head<T: Real>(&self, head: usize, qkv: &[T], d_out: &[T]) -> Vec<T> {
        let (hidden, width) = (self.hidden(), self.width);
        let (stride, own) = (3 * hidden, 3 * width);
        let scale = T::from_f64(1.0 / (width as f64).sqrt());
        let mut d_head = vec![T::ZERO; qkv.len() / self.heads];
        let (mut scores, mut derivatives) = (Vec::new(), Vec::new());
        for (first, rows) in self.starts() {
            let block = self.block(head, first, rows);
            let Block { query, key, value, count, length, .. } = block;
            grow(&mut scores, count * length);
            grow(&mut derivatives, count * length);
            let scores = &mut scores[..count * length];
            let d_scores = &mut derivatives[..count * length];
            self.probabilities(block, qkv, scores);
            let d_out = View::strided(&d_out[block.out..], count, width, hidden);
            let values = View::strided(&qkv[value..], length, width, stride);
            matmul(ViewMut::new(d_scores, count, length), d_out, values.t(), Accumulate::Set, T::ONE);
            let d_values = ViewMut::strided(&mut d_head[rows.start * own + 2 * width..], length, width, own);
            matmul(d_values, View::new(scores, count, length).t(), d_out, Accumulate::Add, T::ONE);
            softmax_rows_backward(scores, d_scores, length);
            let d_scores = View::new(d_scores, count, length);
            let keys = View::strided(&qkv[key..], length, width, stride);
            let d_queries = ViewMut::strided(&mut d_head[first * own..], count, width, own);
            matmul(d_queries, d_scores, keys, Accumulate::Set, scale);
            let queries = View::strided(&qkv[query..], count, width, stride);
            let d_keys = ViewMut::strided(&mut d_head[rows.start * own + width..], length, width, own);
            matmul(d_keys, d_scores.t(), queries, Accumulate::Add, scale);
        }
        d_head
    }
}
