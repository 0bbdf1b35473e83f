//! The decoder's layers over a packed micro-batch. The residual stream and its gradient are f32;
//! all other stored values are bfloat16. The backward pass always recomputes the MLP's gated
//! product and, with `recompute`, everything but the layer inputs.

use std::ops::Range;
use std::sync::Arc;

use super::CudaError;
use super::angles::Angles;
use super::driver::Driver;
use super::head::Head;
use super::kernels::PARTIAL_BLOCKS;
use super::memory::{Bf16, Buffer, Part, Plain, Tile};
use super::network::{Gradient, Low, Network, head_norms};
use super::tiles::{key_tiles, query_tiles};
use crate::packing::Packing;
use crate::weights::lora::{Dropout, Joint};

struct Activations {
    normed: Buffer<Bf16>,
    inverse: Buffer<f32>,
    raw: Buffer<Bf16>,
    head_inverse: Buffer<f32>,
    qkv: Buffer<Bf16>,
    attended: Buffer<Bf16>,
    log_sum: Buffer<f32>,
    middle: Buffer<f32>,
    middle_normed: Buffer<Bf16>,
    middle_inverse: Buffer<f32>,
    gate_up: Buffer<Bf16>,
}

impl Activations {
    fn new(driver: &Arc<dyn Driver>) -> Self {
        Self {
            normed: Buffer::empty(driver),
            inverse: Buffer::empty(driver),
            raw: Buffer::empty(driver),
            head_inverse: Buffer::empty(driver),
            qkv: Buffer::empty(driver),
            attended: Buffer::empty(driver),
            log_sum: Buffer::empty(driver),
            middle: Buffer::empty(driver),
            middle_normed: Buffer::empty(driver),
            middle_inverse: Buffer::empty(driver),
            gate_up: Buffer::empty(driver),
        }
    }

    fn grow(&mut self, network: &Network, tokens: usize) -> Result<(), CudaError> {
        let config = &network.config;
        let heads = network.heads();
        let normed =
            network.layout.layers.first().is_some_and(|layer| network.preparation(layer).q_norm.is_some());
        let (raw, inverse) = if normed { (network.qkv_width(), heads.queries + heads.keys) } else { (0, 0) };
        self.normed.grow(tokens * config.hidden_size)?;
        self.inverse.grow(tokens)?;
        self.raw.grow(tokens * raw)?;
        self.head_inverse.grow(tokens * inverse)?;
        self.qkv.grow(tokens * network.qkv_width())?;
        self.attended.grow(tokens * config.query_width())?;
        self.log_sum.grow(tokens * heads.queries)?;
        self.middle.grow(tokens * config.hidden_size)?;
        self.middle_normed.grow(tokens * config.hidden_size)?;
        self.middle_inverse.grow(tokens)?;
        self.gate_up.grow(tokens * 2 * config.intermediate_size)
    }
}

struct Derivatives {
    residual: Buffer<f32>,
    rounded: Buffer<Bf16>,
    hidden: Buffer<Bf16>,
    attended: Buffer<Bf16>,
    qkv: Buffer<Bf16>,
    inner: Buffer<Bf16>,
    pull: Buffer<f32>,
    partials: Buffer<f32>,
    order: Buffer<i32>,
    starts: Buffer<i32>,
    /// Query and key tiles, whose rows are relative to the run's first row.
    tiles: [Buffer<Tile>; 2],
}

pub(crate) struct Decoder {
    recompute: bool,
    angles: Angles,
    tokens: Buffer<i32>,
    positions: Buffer<i32>,
    tiles: Buffer<Tile>,
    residual: Vec<Buffer<f32>>,
    /// Stored activations: one entry per layer, or a single one with `recompute`.
    kept: Vec<Activations>,
    activated: Buffer<Bf16>,
    low: Low,
    derivatives: Derivatives,
    pub(crate) head: Head,
}

fn rows<T: Plain>(buffer: &Buffer<T>, range: &Range<usize>, width: usize) -> Part<T> {
    buffer.part(range.start * width..range.end * width)
}

fn ranges(packing: &Packing, sequences: &Range<usize>) -> Vec<Range<usize>> {
    sequences.clone().map(|index| packing.tokens_of(&(index..index + 1))).collect()
}

impl Decoder {
    pub(crate) fn new(network: &Network, recompute: bool) -> Self {
        let driver = &network.kernels.driver;
        let layers = network.layout.layers.len();
        Self {
            recompute,
            angles: Angles::new(driver, &network.config),
            tokens: Buffer::empty(driver),
            positions: Buffer::empty(driver),
            tiles: Buffer::empty(driver),
            residual: (0..=layers).map(|_| Buffer::empty(driver)).collect(),
            kept: (0..if recompute { 1 } else { layers }).map(|_| Activations::new(driver)).collect(),
            activated: Buffer::empty(driver),
            low: Low::new(driver),
            derivatives: Derivatives {
                residual: Buffer::empty(driver),
                rounded: Buffer::empty(driver),
                hidden: Buffer::empty(driver),
                attended: Buffer::empty(driver),
                qkv: Buffer::empty(driver),
                inner: Buffer::empty(driver),
                pull: Buffer::empty(driver),
                partials: Buffer::empty(driver),
                order: Buffer::empty(driver),
                starts: Buffer::empty(driver),
                tiles: [Buffer::empty(driver), Buffer::empty(driver)],
            },
            head: Head::new(driver),
        }
    }

    pub(crate) fn forward(
        &mut self,
        network: &Network,
        packing: &Packing,
        dropout: Option<Dropout>,
    ) -> Result<(), CudaError> {
        let (count, hidden) = (packing.tokens.len(), network.config.hidden_size);
        let room = count.next_multiple_of(256);
        self.angles.up_to(packing.longest())?;
        let tokens: Vec<i32> = packing.tokens.iter().map(|&token| token as i32).collect();
        let all = 0..packing.sequences();
        let sequences = ranges(packing, &all);
        let positions: Vec<i32> = sequences.iter().flat_map(|range| 0..range.len() as i32).collect();
        let tokens = self.tokens.put(&tokens)?;
        let positions = self.positions.put(&positions)?;
        let identities = sequences.iter().zip(&packing.identities);
        let identities: Vec<u64> =
            identities.flat_map(|(range, &id)| std::iter::repeat_n(id, range.len())).collect();
        let widest = hidden.max(network.config.query_width()).max(network.config.intermediate_size);
        self.low.begin(dropout, &identities, widest, positions)?;
        let tiles = self.tiles.put(&query_tiles(&sequences))?.len;
        for buffer in &mut self.residual {
            buffer.grow(room * hidden)?;
        }
        for kept in &mut self.kept {
            kept.grow(network, room)?;
        }
        self.activated.grow(room * network.config.intermediate_size)?;
        self.low.grow(network, room, true)?;
        let embedding = network.at(&network.layout.embedding);
        network.kernels.embed(tokens, embedding, self.residual[0].part(0..count * hidden))?;
        let run = Run { network, tokens: 0..count, tiles };
        for index in 0..network.layout.layers.len() {
            self.layer(&run, index)?;
        }
        let last = &self.residual[network.layout.layers.len()];
        self.head.gather(network, packing, last.part(0..count * hidden))
    }

    fn layer(&mut self, run: &Run<'_>, index: usize) -> Result<(), CudaError> {
        let Run { network, tokens, tiles } = run;
        self.low.over(tokens);
        let (config, layer, kernels) = (&network.config, &network.layout.layers[index], &network.kernels);
        let (hidden, inner, query) = (config.hidden_size, config.intermediate_size, config.query_width());
        let (count, epsilon, width) = (tokens.len(), network.epsilon(), network.qkv_width());
        let kept = &self.kept[if self.recompute { 0 } else { index }];
        let x = rows(&self.residual[index], tokens, hidden);

        let (normed, inverse) = (rows(&kept.normed, tokens, hidden), rows(&kept.inverse, tokens, 1));
        kernels.rms_norm(x, None, network.at(&layer.input_norm), epsilon, count, normed, inverse)?;
        let preparation = network.preparation(layer);
        let qkv = rows(&kept.qkv, tokens, width);
        let (raw, head_inverse) = if preparation.q_norm.is_some() {
            let heads = network.heads();
            let inverse = rows(&kept.head_inverse, tokens, heads.queries + heads.keys);
            (rows(&kept.raw, tokens, width), Some(inverse))
        } else {
            (qkv, None)
        };
        network.linear(index, Joint::Qkv).forward(normed, count, raw, &self.low)?;
        let (positions, angles) = (rows(&self.positions, tokens, 1), self.angles.all());
        kernels.prepare_qkv(raw, &preparation, positions, angles, qkv, head_inverse, None)?;
        let parts = attention_parts(network, &kept.qkv);
        let (attended, log_sum) = (kept.attended.all(), Some(kept.log_sum.all()));
        let tiles = self.tiles.part(0..*tiles);
        kernels.attention(
            tiles,
            (parts[0], width),
            (parts[1], parts[2], width),
            network.heads(),
            attended,
            log_sum,
        )?;
        let middle = rows(&kept.middle, tokens, hidden);
        x.copy_to(network.driver(), middle)?;
        network.linear(index, Joint::Output).add(
            rows(&kept.attended, tokens, query),
            count,
            middle,
            &self.low,
        )?;

        let (normed, inverse) =
            (rows(&kept.middle_normed, tokens, hidden), rows(&kept.middle_inverse, tokens, 1));
        kernels.rms_norm(middle, None, network.at(&layer.post_norm), epsilon, count, normed, inverse)?;
        let (gate_up, activated) =
            (rows(&kept.gate_up, tokens, 2 * inner), rows(&self.activated, tokens, inner));
        network.linear(index, Joint::GateUp).forward(normed, count, gate_up, &self.low)?;
        kernels.swiglu(gate_up, count, inner, activated)?;
        let out = rows(&self.residual[index + 1], tokens, hidden);
        middle.copy_to(network.driver(), out)?;
        network.linear(index, Joint::Down).add(activated, count, out, &self.low)
    }

    /// Backpropagates a range of sequences through the layers. Call this at most once per sequence,
    /// because it overwrites stored values.
    pub(crate) fn backward(
        &mut self,
        network: &Network,
        packing: &Packing,
        sequences: &Range<usize>,
        gradient: Gradient,
    ) -> Result<(), CudaError> {
        let (driver, hidden) = (network.driver(), network.config.hidden_size);
        let tokens = packing.tokens_of(sequences);
        let count = tokens.len();
        let room = count.next_multiple_of(256);
        let d = &mut self.derivatives;
        d.residual.grow(room * hidden)?;
        d.rounded.grow(room * hidden)?;
        d.hidden.grow(room * hidden)?;
        d.attended.grow(room * network.config.query_width())?;
        d.qkv.grow(room * network.qkv_width())?;
        d.inner.grow(room * network.config.intermediate_size)?;
        d.pull.grow(room * network.heads().queries)?;
        d.partials.grow(PARTIAL_BLOCKS * hidden.max(8 * network.kernels.shape.head))?;
        let local: Vec<Range<usize>> = ranges(packing, sequences)
            .into_iter()
            .map(|range| range.start - tokens.start..range.end - tokens.start)
            .collect();
        // Uploads wait for the device, so they come before the layers.
        let local = [d.tiles[0].put(&query_tiles(&local))?, d.tiles[1].put(&key_tiles(&local))?];
        let (residual, rounded) = (d.residual.part(0..count * hidden), d.rounded.part(0..count * hidden));
        residual.clear(driver)?;
        rounded.clear(driver)?;
        self.head.finish_backward(
            network,
            packing,
            sequences,
            rows(&self.residual[network.layout.layers.len()], &tokens, hidden),
            (residual, rounded),
            gradient,
            self.derivatives.partials.all(),
        )?;
        let layers = network.layout.layers.len();
        let whole = *sequences == (0..packing.sequences());
        // Forward numbers rows in the whole micro-batch.
        let tiles = query_tiles(&ranges(packing, sequences));
        if self.recompute && !whole {
            self.tiles.put(&tiles)?;
        }
        let run = Run { network, tokens: tokens.clone(), tiles: tiles.len() };
        for index in (0..layers).rev() {
            if self.recompute && (index + 1 < layers || !whole) {
                self.layer(&run, index)?;
            }
            self.layer_backward(&run, index, local, gradient)?;
        }
        self.embedding_backward(network, packing, &tokens, gradient)
    }

    fn layer_backward(
        &mut self,
        run: &Run<'_>,
        index: usize,
        tiles: [Part<Tile>; 2],
        gradient: Gradient,
    ) -> Result<(), CudaError> {
        let Run { network, tokens, .. } = run;
        self.low.over(tokens);
        let (config, layer, kernels) = (&network.config, &network.layout.layers[index], &network.kernels);
        let (hidden, inner, query) = (config.hidden_size, config.intermediate_size, config.query_width());
        let (count, width, heads) = (tokens.len(), network.qkv_width(), network.heads());
        let (kept, d) = (&self.kept[if self.recompute { 0 } else { index }], &self.derivatives);
        let (residual, rounded) = (d.residual.part(0..count * hidden), d.rounded.part(0..count * hidden));
        let d_hidden = d.hidden.part(0..count * hidden);
        let norm_sums = |range: &Range<usize>| gradient.of(range).map(|to| (to, d.partials.all()));

        let (gate_up, activated) =
            (rows(&kept.gate_up, tokens, 2 * inner), self.activated.part(0..count * inner));
        kernels.swiglu(gate_up, count, inner, activated)?;
        let d_inner = d.inner.part(0..count * inner);
        network
            .linear(index, Joint::Down)
            .backward(activated, rounded, count, d_inner, gradient, &self.low)?;
        kernels.swiglu_backward(d_inner, count, inner, gate_up)?;
        let normed = rows(&kept.middle_normed, tokens, hidden);
        network
            .linear(index, Joint::GateUp)
            .backward(normed, gate_up, count, d_hidden, gradient, &self.low)?;
        let weight = network.at(&layer.post_norm);
        let input = [rows(&kept.middle, tokens, hidden), rows(&kept.middle_inverse, tokens, 1)];
        let sums = norm_sums(&layer.post_norm);
        kernels.rms_norm_backward(d_hidden, input, weight, count, (residual, rounded), sums)?;

        let (attended, d_attended) = (rows(&kept.attended, tokens, query), d.attended.part(0..count * query));
        network
            .linear(index, Joint::Output)
            .backward(attended, rounded, count, d_attended, gradient, &self.low)?;
        let d_qkv = d.qkv.part(0..count * width);
        let numbers = [rows(&kept.log_sum, tokens, heads.queries), d.pull.part(0..count * heads.queries)];
        let qkv = rows(&kept.qkv, tokens, width);
        kernels.attention_backward(tiles, qkv, [attended, d_attended], numbers, heads, d_qkv)?;
        let preparation = network.preparation(layer);
        let (raw, inverse, sums) = match head_norms(&network.layout.layers[index]) {
            Some([q, k]) => {
                let inverse = rows(&kept.head_inverse, tokens, heads.queries + heads.keys);
                let to = gradient.of(&q).zip(gradient.of(&k));
                let sums = to.map(|(q, k)| ([q, k], d.partials.all()));
                (rows(&kept.raw, tokens, width), Some(inverse), sums)
            }
            None => (qkv, None, None),
        };
        let (positions, angles) = (rows(&self.positions, tokens, 1), self.angles.all());
        kernels.prepare_qkv_backward(raw, &preparation, inverse, positions, angles, d_qkv, sums)?;
        let normed = rows(&kept.normed, tokens, hidden);
        network.linear(index, Joint::Qkv).backward(normed, d_qkv, count, d_hidden, gradient, &self.low)?;
        let weight = network.at(&layer.input_norm);
        let input = [rows(&self.residual[index], tokens, hidden), rows(&kept.inverse, tokens, 1)];
        let sums = norm_sums(&layer.input_norm);
        kernels.rms_norm_backward(d_hidden, input, weight, count, (residual, rounded), sums)
    }

    /// Accumulates the embedding's gradient; rows with the same token are summed in order.
    fn embedding_backward(
        &mut self,
        network: &Network,
        packing: &Packing,
        tokens: &Range<usize>,
        gradient: Gradient,
    ) -> Result<(), CudaError> {
        let Some(to) = gradient.of(&network.layout.embedding) else { return Ok(()) };
        let ids = &packing.tokens[tokens.clone()];
        let mut order: Vec<usize> = (0..ids.len()).collect();
        order.sort_by_key(|&row| ids[row]);
        let begins = |at: &usize| *at == 0 || ids[order[*at]] != ids[order[*at - 1]];
        let mut starts: Vec<i32> = (0..order.len()).filter(begins).map(|at| at as i32).collect();
        starts.push(order.len() as i32);
        let order: Vec<i32> = order.into_iter().map(|row| row as i32).collect();
        let d = &mut self.derivatives;
        let (order, starts) = (d.order.put(&order)?, d.starts.put(&starts)?);
        let d_out = d.residual.part(0..ids.len() * network.config.hidden_size);
        network.kernels.embed_backward(rows(&self.tokens, tokens, 1), order, starts, d_out, to)
    }
}

struct Run<'a> {
    network: &'a Network,
    tokens: Range<usize>,
    tiles: usize,
}

pub(super) fn attention_parts(network: &Network, qkv: &Buffer<Bf16>) -> [Part<Bf16>; 3] {
    let (query, key) = (network.config.query_width(), network.config.key_value_width());
    [0, query, query + key].map(|first| qkv.part(first.min(qkv.len())..qkv.len()))
}
