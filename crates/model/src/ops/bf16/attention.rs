//! Causal grouped-query attention with bf16 products.
//!
//! Computes the equations of [`super::super::attention`] but processes the blocks in a different
//! order. The forward pass takes 32 queries and all earlier keys at a time. The backward pass takes
//! a block of keys and all later queries, with transposed scores (`S^T = K Q^T`). Each key and
//! value gradient is then one matrix product, and only narrow operands are transposed. Fully masked
//! blocks of 32 x 32 are skipped. Probabilities and their gradients are rounded to bf16; row sums,
//! maxima and logarithms are `f32`.
//!
//! Query `q` has position `before + q`. Unless `before` is a multiple of 32, the mask's diagonal
//! crosses two panels of keys.

use super::super::attention::{Derivatives, Heads, KeyValues, Output as AttentionOutput};
use super::super::linear::Accumulate;
use super::attention_rows::{BackwardBlock, Lanes, backward_block, softmax_panel};
use super::product::{Kernel, Multiplier, Output};
use super::tiles::{Line, Operand, PANEL, PANEL_LINES, Panels, Side};

const KEY_PANELS: usize = 4;
const QUERY_PANELS: usize = 16;

/// Buffers of one head, which grow with the longest sequence.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch {
    /// In the forward pass, keys and values; in the backward pass, keys and values by rows, and
    /// transposed keys.
    of_keys: [Panels; 3],
    /// In the forward pass, queries; in the backward pass, queries and output gradients, packed
    /// first by position, then by the head's width.
    of_queries: [Panels; 4],
    /// Scores, and gradients of the probabilities, in rows `score_stride` vectors apart.
    scores: [Vec<Lanes>; 2],
    /// Probabilities and score gradients as left operands, and score gradients as a right operand.
    lines: [Vec<Line>; 3],
    /// For each query, the inverse of the softmax denominator (forward), or its log and `D_t`
    /// (backward).
    rows: [Vec<f32>; 2],
    d_queries: Vec<f32>,
}

#[derive(Clone, Copy)]
struct Columns<'a> {
    data: &'a [f32],
    length: usize,
    width: usize,
    stride: usize,
}

impl<'a> Columns<'a> {
    /// Returns an operand with positions as outer dimension and the head's width as depth.
    fn by_position(self) -> Operand<'a> {
        let Self { data, length, width, stride } = self;
        Operand { data, outer: length, depth: width, outer_stride: stride, depth_stride: 1 }
    }

    /// Returns an operand with the head's width as outer dimension and positions as depth.
    fn by_width(self) -> Operand<'a> {
        let Self { data, length, width, stride } = self;
        Operand { data, outer: width, depth: length, outer_stride: 1, depth_stride: stride }
    }
}

fn pack(to: &mut Panels, side: Side, from: Operand<'_>) {
    to.pack(side, from, 0..from.outer, 0..from.depth);
}

/// Returns the row stride in vectors. The stride is odd, because a power of two would map all rows
/// to the same cache set.
fn score_stride(panels: usize) -> usize {
    2 * panels + 1
}

fn grow<T: Copy>(buffer: &mut Vec<T>, len: usize, zero: T) {
    if buffer.len() < len {
        buffer.resize(len, zero);
    }
}

pub(super) fn first_query(key: usize, before: usize) -> usize {
    (key * PANEL).saturating_sub(before + PANEL - 1).div_ceil(PANEL)
}

fn keys_seen(query: usize, before: usize) -> usize {
    (before + query * PANEL).div_ceil(PANEL) + 1
}

pub(crate) fn forward(
    kernel: Kernel,
    heads: Heads,
    qkv: &[f32],
    key_values: KeyValues<'_, f32>,
    out: &mut [f32],
    log_sum: &mut [f32],
    scratch: &mut Scratch,
) {
    let mut multiplier = Multiplier::new(kernel);
    let (stride, width) = (heads.row(), heads.width);
    let out_stride = heads.queries * width;
    let KeyValues { before, length: total, .. } = key_values;
    let length = total - before;
    let (panels, key_panels) = (length.div_ceil(PANEL), total.div_ceil(PANEL));
    let score_stride = score_stride(key_panels);
    let Scratch { of_keys: [keys, values, _], of_queries: [queries, ..], .. } = scratch;
    let ([scores, _], [lines, ..], [inverse, _]) =
        (&mut scratch.scores, &mut scratch.lines, &mut scratch.rows);
    grow(scores, PANEL * score_stride, Lanes::ZERO);
    grow(lines, key_panels * PANEL_LINES, Line::ZERO);
    grow(inverse, PANEL, 0.0);
    for head in 0..heads.queries {
        let [query, key, value] = heads.offsets(head);
        if head.is_multiple_of(heads.queries / heads.keys) {
            pack(keys, Side::Right, of_key_values(key_values, key, width).by_position());
            pack(values, Side::Right, of_key_values(key_values, value, width).by_width());
        }
        let columns = Columns { data: &qkv[query..], length, width, stride };
        pack(queries, Side::Left, columns.by_position());
        for panel in 0..panels {
            let first = panel * PANEL;
            let count = PANEL.min(length - first);
            let seen = keys_seen(panel, before).min(key_panels);
            let lines = &mut lines[..seen * PANEL_LINES];
            for other in 0..seen {
                let output = Output {
                    data: &mut Lanes::flat_mut(scores)[other * PANEL..],
                    rows: PANEL,
                    columns: PANEL,
                    stride: 16 * score_stride,
                };
                multiplier.multiply(queries.panel(panel), keys.panel(other), output, Accumulate::Set, 1.0);
            }
            let log_sum = &mut log_sum[first * heads.queries + head..];
            let sums = softmax_panel(scores, score_stride, before + first, heads.scale(), lines, inverse);
            for (index, sum) in sums.iter().take(count).enumerate() {
                log_sum[index * heads.queries] = *sum;
            }
            for (index, column) in (0..width).step_by(PANEL).enumerate() {
                let columns = PANEL.min(width - column);
                let data = &mut out[first * out_stride + head * width + column..];
                let output = Output { data, rows: count, columns, stride: out_stride };
                let values = &values.panel(index)[..lines.len()];
                multiplier.multiply(lines, values, output, Accumulate::Set, 1.0);
            }
            let rows = out[first * out_stride..].chunks_mut(out_stride).zip(inverse.iter());
            for (row, &inverse) in rows.take(count) {
                row[head * width..][..width].iter_mut().for_each(|value| *value *= inverse);
            }
        }
    }
}

fn of_key_values(key_values: KeyValues<'_, f32>, offset: usize, width: usize) -> Columns<'_> {
    let KeyValues { stride, length, .. } = key_values;
    Columns { data: key_values.column(offset), length, width, stride }
}

pub(crate) fn backward(
    kernel: Kernel,
    heads: Heads,
    qkv: &[f32],
    key_values: KeyValues<'_, f32>,
    output: &AttentionOutput<'_, f32>,
    to: Derivatives<'_, f32>,
    scratch: &mut Scratch,
) {
    let multiplier = Multiplier::new(kernel);
    let AttentionOutput { out, d_out, log_sum } = *output;
    let (stride, width) = (heads.row(), heads.width);
    let KeyValues { before, length: total, .. } = key_values;
    let length = total - before;
    let (panels, key_panels) = (length.div_ceil(PANEL), total.div_ceil(PANEL));
    let blocks = [KEY_PANELS.min(key_panels), QUERY_PANELS.min(panels)];
    let tiles = blocks[0] * blocks[1];
    scratch.scores.iter_mut().for_each(|scores| {
        grow(scores, blocks[0] * PANEL * score_stride(blocks[1]), Lanes::ZERO);
    });
    scratch.lines.iter_mut().for_each(|lines| grow(lines, tiles * PANEL_LINES, Line::ZERO));
    grow(&mut scratch.d_queries, width.next_multiple_of(PANEL) * panels * PANEL, 0.0);
    let mut head_backward = HeadBackward { multiplier, heads, panels, key_panels, before, total, to };
    for head in 0..heads.queries {
        let [query, key, value] = heads.offsets(head);
        let columns = |start: usize| Columns { data: &qkv[start..], length, width, stride };
        if head.is_multiple_of(heads.queries / heads.keys) {
            let [keys, values, turned_keys] = &mut scratch.of_keys;
            let columns = |start: usize| of_key_values(key_values, start, width);
            pack(keys, Side::Left, columns(key).by_position());
            pack(values, Side::Left, columns(value).by_position());
            pack(turned_keys, Side::Left, columns(key).by_width());
        }
        let of_head = head * width;
        let out_stride = heads.queries * width;
        let d_out_columns = Columns { data: &d_out[of_head..], length, width, stride: out_stride };
        let [queries, d_outs, queries_by_depth, d_outs_by_depth] = &mut scratch.of_queries;
        pack(queries, Side::Right, columns(query).by_position());
        pack(d_outs, Side::Right, d_out_columns.by_position());
        pack(queries_by_depth, Side::Right, columns(query).by_width());
        pack(d_outs_by_depth, Side::Right, d_out_columns.by_width());
        let [log_sums, pulls] = &mut scratch.rows;
        log_sums.clear();
        log_sums.extend(log_sum[head..].iter().step_by(heads.queries).take(length));
        pulls.clear();
        let rows = out.chunks_exact(out_stride).zip(d_out.chunks_exact(out_stride)).take(length);
        pulls.extend(rows.map(|(out, d_out)| {
            let pairs = out[of_head..].iter().zip(&d_out[of_head..of_head + width]);
            pairs.map(|(a, b)| a * b).sum::<f32>()
        }));
        // Rows past the end do not affect results, but must not be NaN.
        log_sums.resize(panels * PANEL, 0.0);
        pulls.resize(panels * PANEL, 0.0);
        scratch.d_queries[..width.next_multiple_of(PANEL) * panels * PANEL].fill(0.0);
        for keys in (0..key_panels).step_by(KEY_PANELS) {
            for queries in (first_query(keys, before)..panels).step_by(QUERY_PANELS) {
                head_backward.block(head, [keys, queries], scratch);
            }
        }
        head_backward.put_queries(head, length, scratch);
    }
}

struct HeadBackward<'a> {
    multiplier: Multiplier,
    heads: Heads,
    panels: usize,
    key_panels: usize,
    before: usize,
    total: usize,
    to: Derivatives<'a, f32>,
}

impl HeadBackward<'_> {
    fn block(&mut self, head: usize, [first_key, start_query]: [usize; 2], scratch: &mut Scratch) {
        let Self { multiplier, heads, panels, key_panels, before, total, to } = self;
        let (panels, before, width) = (*panels, *before, heads.width);
        let keys = first_key..(*key_panels).min(first_key + KEY_PANELS);
        let queries = start_query..panels.min(start_query + QUERY_PANELS);
        let score_stride = score_stride(queries.len());
        let (scores, lines) = (&mut scratch.scores, &mut scratch.lines);
        let operands =
            [(&scratch.of_keys[0], &scratch.of_queries[0]), (&scratch.of_keys[1], &scratch.of_queries[1])];
        for (scores, (left, right)) in scores.iter_mut().zip(operands) {
            let scores = Lanes::flat_mut(scores);
            for key in keys.clone() {
                for query in queries.start.max(first_query(key, before))..queries.end {
                    let at = (key - keys.start) * PANEL * 16 * score_stride + (query - queries.start) * PANEL;
                    let output = Output {
                        data: &mut scores[at..],
                        rows: PANEL,
                        columns: PANEL,
                        stride: 16 * score_stride,
                    };
                    multiplier.multiply(left.panel(key), right.panel(query), output, Accumulate::Set, 1.0);
                }
            }
        }
        backward_block(BackwardBlock {
            scores: &scores[0],
            derivatives: &scores[1],
            score_stride,
            keys: keys.clone(),
            queries: queries.clone(),
            before,
            log_sums: &scratch.rows[0],
            pulls: &scratch.rows[1],
            scale: heads.scale(),
            lines,
        });
        let [probabilities, d_scores, d_scores_right] = &*lines;
        let [_, key_start, value_start] = heads.offsets(head);
        let [_, _, queries_by_depth, d_outs_by_depth] = &scratch.of_queries;
        for key in keys.clone() {
            let seen = queries.start.max(first_query(key, before))..queries.end;
            if seen.is_empty() {
                continue;
            }
            let at = (key - keys.start) * queries.len();
            let steps = (at + seen.start - queries.start) * PANEL_LINES
                ..(at + seen.end - queries.start) * PANEL_LINES;
            let depth = seen.start * PANEL_LINES..seen.end * PANEL_LINES;
            let rows = PANEL.min(*total - key * PANEL);
            for (index, column) in (0..width).step_by(PANEL).enumerate() {
                let columns = PANEL.min(width - column);
                for (left, right, start) in
                    [(probabilities, d_outs_by_depth, value_start), (d_scores, queries_by_depth, key_start)]
                {
                    let (data, stride) = to.column(*heads, start + column);
                    let data = &mut data[key * PANEL * stride..];
                    let output = Output { data, rows, columns, stride };
                    let right = &right.panel(index)[depth.clone()];
                    multiplier.multiply(&left[steps.clone()], right, output, Accumulate::Add, 1.0);
                }
            }
        }
        let turned_keys = &scratch.of_keys[2];
        for query in queries.clone() {
            let seen = keys.start..keys.end.min(keys_seen(query, before));
            let at = (query - queries.start) * keys.len() * PANEL_LINES;
            let right = &d_scores_right[at..at + seen.len() * PANEL_LINES];
            for panel in 0..width.div_ceil(PANEL) {
                let left = &turned_keys.panel(panel)[seen.start * PANEL_LINES..seen.end * PANEL_LINES];
                let data = &mut scratch.d_queries[(panel * panels * PANEL + query) * PANEL..];
                let output = Output { data, rows: PANEL, columns: PANEL, stride: panels * PANEL };
                multiplier.multiply(left, right, output, Accumulate::Add, 1.0);
            }
        }
    }

    fn put_queries(&mut self, head: usize, length: usize, scratch: &Scratch) {
        let [start, ..] = self.heads.offsets(head);
        let (width, row, stride) = (self.heads.width, self.heads.row(), self.panels * PANEL);
        // Whole cache lines of the source at a time.
        for first in (0..length).step_by(16) {
            let count = 16.min(length - first);
            for column in 0..width {
                let from = &scratch.d_queries[column * stride + first..][..count];
                for (index, &value) in from.iter().enumerate() {
                    self.to.own[(first + index) * row + start + column] = value;
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "attention_tests.rs"]
mod tests;
