use std::ops::Range;

use crate::backend::Network;
use crate::cpu::head::rows;
use crate::cpu::projection::Projection;
use crate::ops::attention::{self, Heads, Output, Place, attention, attention_backward};
use crate::ops::bf16::Kernel;
use crate::ops::grow;
use crate::ops::linear::Accumulate;
use crate::ops::mlp::{swiglu, swiglu_backward};
use crate::ops::norm::{norm_heads, norm_heads_backward, rms_norm, rms_norm_backward};
use crate::ops::rope::{Direction, RopeTable};
use crate::packing::{Packing, Run, Segment, Selection};
use crate::weights::lora::{self, BranchPass};
use crate::{LayerLayout, ModelConfig, Real};

#[derive(Clone, Debug, Default)]
pub(crate) struct Activations<T> {
    normed: Vec<T>,
    inverse: Vec<T>,
    qkv: Vec<T>,
    /// Queries and keys before their RMS norm, if the family has one.
    raw_heads: Vec<T>,
    heads_inverse: Vec<T>,
    attended: Vec<T>,
    log_sum: Vec<T>,
    middle: Vec<T>,
    middle_normed: Vec<T>,
    middle_inverse: Vec<T>,
    gate_up: Vec<T>,
    activated: Vec<T>,
}

impl<T: Real> Activations<T> {
    pub(crate) fn buffers<'a>(&'a mut self, config: &ModelConfig) -> [(&'a mut Vec<T>, usize); 12] {
        let hidden = config.hidden_size;
        let qkv = config.query_width() + 2 * config.key_value_width();
        let normed = usize::from(config.qk_norm());
        let heads = config.num_attention_heads + config.num_key_value_heads;
        [
            (&mut self.normed, hidden),
            (&mut self.inverse, 1),
            (&mut self.qkv, qkv),
            (&mut self.raw_heads, normed * heads * config.head_dim),
            (&mut self.heads_inverse, normed * heads),
            (&mut self.attended, config.query_width()),
            (&mut self.log_sum, config.num_attention_heads),
            (&mut self.middle, hidden),
            (&mut self.middle_normed, hidden),
            (&mut self.middle_inverse, 1),
            (&mut self.gate_up, 2 * config.intermediate_size),
            (&mut self.activated, config.intermediate_size),
        ]
    }

    pub(crate) fn resize(&mut self, config: &ModelConfig, tokens: usize) {
        for (buffer, width) in self.buffers(config) {
            grow(buffer, tokens * width);
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch<T> {
    attention: attention::Scratch<T>,
    adapter: lora::Scratch<T>,
}

/// A pass of one layer over the selected rows, in buffers that span the whole micro-batch.
pub(crate) struct Pass<'a, T> {
    pub(crate) network: Network<'a, T>,
    pub(crate) config: &'a ModelConfig,
    pub(crate) data: &'a [T],
    pub(crate) index: usize,
    pub(crate) layer: &'a LayerLayout,
    pub(crate) packing: &'a Packing,
    pub(crate) rows: &'a Selection,
    pub(crate) bf16: Option<Kernel>,
}

pub(crate) struct Derivatives<'a, T> {
    /// Gradient of the layer's output, overwritten with the gradient of the layer's input.
    pub(crate) residual: &'a mut [T],
    /// Space per run for the residual stream or the queries, whichever is wider.
    pub(crate) hidden: &'a mut [T],
    pub(crate) qkv: &'a mut [T],
    pub(crate) inner: &'a mut [T],
    pub(crate) gradient: &'a mut [T],
    pub(crate) scratch: &'a mut Scratch<T>,
}

impl<T: Real> Pass<'_, T> {
    fn heads(&self) -> Heads {
        Heads::of(self.config)
    }

    fn weights(&self, range: Range<usize>) -> &[T] {
        &self.data[range]
    }

    fn branch(&self, projection: &Projection, rows: &Range<usize>) -> Option<BranchPass<'_, T>> {
        let Network { adapter, dropout, .. } = self.network;
        let adapter = adapter?;
        let branch = &adapter.layout.layers[self.index][projection.joint as usize];
        let (layer, packing, rows) = (self.index, self.packing, rows.clone());
        Some(BranchPass { bf16: self.bf16, adapter, branch, layer, dropout, packing, rows })
    }

    fn project(
        &self,
        projection: &Projection,
        rows: &Range<usize>,
        x: &[T],
        y: &mut [T],
        into: Accumulate,
        scratch: &mut Scratch<T>,
    ) {
        projection.forward(self.bf16, self.data, x, y, into);
        if let Some(branch) = self.branch(projection, rows) {
            branch.forward(x, y, &mut scratch.adapter);
        }
    }

    /// Sets `d_x` and adds the weights' gradients to `gradient`.
    fn project_backward(
        &self,
        projection: &Projection,
        rows: &Range<usize>,
        (x, d_y): (&[T], &[T]),
        d_x: &mut [T],
        gradient: &mut [T],
        scratch: &mut Scratch<T>,
    ) {
        match self.branch(projection, rows) {
            Some(branch) => {
                projection.backward(self.bf16, self.data, x, d_y, d_x, None);
                branch.backward(x, d_y, d_x, gradient, &mut scratch.adapter);
            }
            None => projection.backward(self.bf16, self.data, x, d_y, d_x, Some(gradient)),
        }
    }

    pub(crate) fn forward(
        &self,
        x: &[T],
        out: &mut [T],
        kept: &mut Activations<T>,
        rope: &RopeTable<T>,
        scratch: &mut Scratch<T>,
    ) {
        for run in &self.rows.runs {
            self.forward_heads(run, x, kept, rope, scratch);
        }
        // The rows of a path come before those that see them.
        for segment in self.rows.runs.iter().flat_map(|run| &run.segments) {
            let Activations { qkv, attended, log_sum, .. } = kept;
            let (heads, place, scratch) = (self.heads(), self.place(segment), &mut scratch.attention);
            attention(self.bf16, heads, &place, qkv, attended, log_sum, scratch);
        }
        for run in &self.rows.runs {
            self.forward_rest(&run.rows, x, out, kept, scratch);
        }
    }

    fn place(&self, segment: &Segment) -> Place<'_> {
        Place { rows: segment.rows.clone(), path: self.packing.path(segment.sequence) }
    }

    fn forward_heads(
        &self,
        run: &Run,
        x: &[T],
        kept: &mut Activations<T>,
        rope: &RopeTable<T>,
        scratch: &mut Scratch<T>,
    ) {
        let (config, layer, heads) = (self.config, self.layer, self.heads());
        let hidden = config.hidden_size;
        let of = |width: usize| rows(&run.rows, width);
        let normed = &mut kept.normed[of(hidden)];
        let (weight, inverse) = (self.weights(layer.input_norm.clone()), &mut kept.inverse[of(1)]);
        rms_norm(&x[of(hidden)], weight, config.rms_norm_eps, normed, inverse);
        let qkv = &mut kept.qkv[of(heads.row())];
        self.project(&Projection::qkv(config, layer), &run.rows, normed, qkv, Accumulate::Set, scratch);
        let count = heads.queries + heads.keys;
        if let Some(range) = layer.qk_norm() {
            let raw = &mut kept.raw_heads[of(count * heads.width)];
            let inverse = &mut kept.heads_inverse[of(count)];
            norm_heads(heads, qkv, self.weights(range), config.rms_norm_eps, raw, inverse);
        }
        for Segment { rows: here, depth, .. } in &run.segments {
            let qkv = &mut kept.qkv[rows(here, heads.row())];
            rope.rotate_segment(qkv, heads.row(), count, (here, *depth), Direction::Forward);
        }
    }

    fn forward_rest(
        &self,
        tokens: &Range<usize>,
        x: &[T],
        out: &mut [T],
        kept: &mut Activations<T>,
        scratch: &mut Scratch<T>,
    ) {
        let (config, layer) = (self.config, self.layer);
        let (hidden, inner, query) = (config.hidden_size, config.intermediate_size, config.query_width());
        let of = |width: usize| rows(tokens, width);
        let middle = &mut kept.middle[of(hidden)];
        middle.copy_from_slice(&x[of(hidden)]);
        let attended = &kept.attended[of(query)];
        self.project(&Projection::o(config, layer), tokens, attended, middle, Accumulate::Add, scratch);

        let normed = &mut kept.middle_normed[of(hidden)];
        let inverse = &mut kept.middle_inverse[of(1)];
        rms_norm(middle, self.weights(layer.post_norm.clone()), config.rms_norm_eps, normed, inverse);
        let gate_up = &mut kept.gate_up[of(2 * inner)];
        self.project(&Projection::gate_up(config, layer), tokens, normed, gate_up, Accumulate::Set, scratch);
        let activated = &mut kept.activated[of(inner)];
        swiglu(gate_up, inner, activated);
        let out = &mut out[of(hidden)];
        out.copy_from_slice(middle);
        self.project(&Projection::down(config, layer), tokens, activated, out, Accumulate::Add, scratch);
    }

    pub(crate) fn backward(
        &self,
        x: &[T],
        kept: &mut Activations<T>,
        rope: &RopeTable<T>,
        mut to: Derivatives<'_, T>,
    ) {
        let heads = self.heads();
        let query = self.config.query_width();
        for run in &self.rows.runs {
            self.backward_rest(&run.rows, kept, &mut to);
            to.qkv[rows(&run.rows, heads.row())].fill(T::ZERO);
        }
        for run in &self.rows.runs {
            let d_attended = self.d_attended(&run.rows);
            for segment in &run.segments {
                let local = segment.rows.start - run.rows.start..segment.rows.end - run.rows.start;
                let output = Output {
                    out: &kept.attended,
                    d_out: &to.hidden[d_attended.clone()][rows(&local, query)],
                    log_sum: &kept.log_sum,
                };
                let (place, scratch) = (self.place(segment), &mut to.scratch.attention);
                attention_backward(self.bf16, heads, &place, &kept.qkv, &output, to.qkv, scratch);
            }
        }
        for run in &self.rows.runs {
            self.backward_heads(run, x, kept, rope, &mut to);
        }
    }

    /// Returns the range of [`Derivatives::hidden`] that holds the gradient of a run's attention
    /// output.
    fn d_attended(&self, run: &Range<usize>) -> Range<usize> {
        let (hidden, query) = (self.config.hidden_size, self.config.query_width());
        let start = run.start * hidden.max(query);
        start..start + run.len() * query
    }

    fn backward_rest(&self, run: &Range<usize>, kept: &mut Activations<T>, to: &mut Derivatives<'_, T>) {
        let (config, layer) = (self.config, self.layer);
        let (hidden, inner, query) = (config.hidden_size, config.intermediate_size, config.query_width());
        let of = |width: usize| rows(run, width);
        let d_attended = self.d_attended(run);
        let Derivatives { gradient, scratch, .. } = to;
        let residual = &mut to.residual[of(hidden)];
        let d_hidden = &mut to.hidden[d_attended.start..][..run.len() * hidden];

        let d_inner = &mut to.inner[..run.len() * inner];
        let activated = &kept.activated[of(inner)];
        let projection = Projection::down(config, layer);
        self.project_backward(&projection, run, (activated, residual), d_inner, gradient, scratch);
        let gate_up = &mut kept.gate_up[of(2 * inner)];
        swiglu_backward(d_inner, inner, gate_up);
        let normed = &kept.middle_normed[of(hidden)];
        let projection = Projection::gate_up(config, layer);
        self.project_backward(&projection, run, (normed, gate_up), d_hidden, gradient, scratch);
        let weight = self.weights(layer.post_norm.clone());
        let (middle, inverse) = (&kept.middle[of(hidden)], &kept.middle_inverse[of(1)]);
        let d_weight = self.network.gradient_of(&layer.post_norm, gradient);
        rms_norm_backward(d_hidden, middle, weight, inverse, residual, d_weight);

        let attended = &kept.attended[of(query)];
        let projection = Projection::o(config, layer);
        let d_attended = &mut to.hidden[d_attended];
        self.project_backward(&projection, run, (attended, residual), d_attended, gradient, scratch);
    }

    fn backward_heads(
        &self,
        run: &Run,
        x: &[T],
        kept: &Activations<T>,
        rope: &RopeTable<T>,
        to: &mut Derivatives<'_, T>,
    ) {
        let (config, layer, heads) = (self.config, self.layer, self.heads());
        let hidden = config.hidden_size;
        let of = |width: usize| rows(&run.rows, width);
        let Derivatives { gradient, scratch, .. } = to;
        let count = heads.queries + heads.keys;
        for Segment { rows: here, depth, .. } in &run.segments {
            let d_qkv = &mut to.qkv[rows(here, heads.row())];
            rope.rotate_segment(d_qkv, heads.row(), count, (here, *depth), Direction::Backward);
        }
        let d_qkv = &mut to.qkv[of(heads.row())];
        if let Some(range) = layer.qk_norm() {
            let raw = &kept.raw_heads[of(count * heads.width)];
            let (weight, inverse) = (self.weights(range.clone()), &kept.heads_inverse[of(count)]);
            let d_weight = self.network.gradient_of(&range, gradient);
            norm_heads_backward(heads, d_qkv, raw, weight, inverse, d_weight);
        }
        let d_hidden = &mut to.hidden[self.d_attended(&run.rows).start..][..run.rows.len() * hidden];
        let normed = &kept.normed[of(hidden)];
        let projection = Projection::qkv(config, layer);
        self.project_backward(&projection, &run.rows, (normed, d_qkv), d_hidden, gradient, scratch);
        let weight = self.weights(layer.input_norm.clone());
        let d_weight = self.network.gradient_of(&layer.input_norm, gradient);
        let (x, inverse) = (&x[of(hidden)], &kept.inverse[of(1)]);
        rms_norm_backward(d_hidden, x, weight, inverse, &mut to.residual[of(hidden)], d_weight);
    }
}
