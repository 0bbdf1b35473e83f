//! Passes of the decoder over a packed micro-batch. All rows go through the layers together; only
//! attention and positions depend on a row's sequence.

use crate::backend::Network;
use crate::cpu::decoder_layer::{Activations, Derivatives, Pass, Scratch};
use crate::cpu::head::{HeadState, rows};
use crate::ops::attention;
use crate::ops::bf16::Kernel;
use crate::ops::dispatch::add_assign;
use crate::ops::grow;
use crate::ops::loss_head::RowStatistics;
use crate::ops::rope::RopeTable;
use crate::packing::Packing;
use crate::pictures::FIRST_PICTURE_TOKEN;
use crate::{ModelConfig, Parameters, Real};

#[derive(Clone, Debug)]
pub(crate) struct Workspace<T> {
    /// True if passes store only layer inputs and recompute the rest in the backward pass.
    recompute: bool,
    bf16: Option<Kernel>,
    rope: RopeTable<T>,
    /// Residual stream before each layer and after the last. Without a backward pass, there are
    /// only two alternating buffers.
    residual: Vec<Vec<T>>,
    activations: Vec<Activations<T>>,
    pub(crate) head: HeadState<T>,
    scratch: Scratch<T>,
    d_residual: Vec<T>,
    d_hidden: Vec<T>,
    d_qkv: Vec<T>,
    d_inner: Vec<T>,
    /// Gradients of image features, summed over micro-batches.
    d_pictures: Vec<T>,
}

impl<T: Real> Workspace<T> {
    pub(crate) fn new(config: &ModelConfig, recompute: bool) -> Self {
        let kept = if recompute { 1 } else { config.num_hidden_layers };
        Self {
            recompute,
            bf16: None,
            rope: RopeTable::new(config.rotary()),
            residual: vec![Vec::new(); config.num_hidden_layers + 1],
            activations: vec![Activations::default(); kept],
            head: HeadState::default(),
            scratch: Scratch::default(),
            d_residual: Vec::new(),
            d_hidden: Vec::new(),
            d_qkv: Vec::new(),
            d_inner: Vec::new(),
            d_pictures: Vec::new(),
        }
    }

    pub(crate) fn take_picture_gradient(&mut self) -> Vec<T> {
        std::mem::take(&mut self.d_pictures)
    }

    pub(crate) fn with_bf16(mut self, kernel: Option<Kernel>) -> Self {
        self.bf16 = kernel;
        self.head.bf16 = kernel;
        self
    }

    pub(crate) fn forward_only(config: &ModelConfig) -> Self {
        Self { residual: vec![Vec::new(); 2], ..Self::new(config, true) }
    }

    /// Returns the bytes of buffers for `tokens` rows, `targets` targets and sequences of at most
    /// `longest` tokens.
    pub(crate) fn bytes(
        &self,
        config: &ModelConfig,
        [tokens, targets, longest]: [usize; 3],
        shared: bool,
    ) -> [usize; 2] {
        let forward_only = self.residual.len() < config.num_hidden_layers + 1;
        let hidden = config.hidden_size;
        let kept: usize = Activations::<T>::default().buffers(config).iter().map(|(_, width)| width).sum();
        let mut numbers = self.residual.len() * hidden + self.activations.len() * kept;
        if !forward_only {
            numbers += hidden + hidden.max(config.query_width());
            numbers += config.query_width() + 2 * config.key_value_width() + config.intermediate_size;
        }
        let attention = attention::Scratch::<T>::numbers(config, longest, shared);
        let layers = tokens * numbers + longest * config.head_dim + attention;
        [layers * size_of::<T>(), HeadState::<T>::bytes(config, targets, forward_only)]
    }

    /// Runs a micro-batch and returns one [`RowStatistics`] per target. Divides logits by
    /// `temperature`.
    pub(crate) fn forward<'a>(
        &mut self,
        network: impl std::convert::Into<Network<'a, T>>,
        packing: &Packing,
        temperature: f64,
    ) -> &[RowStatistics<T>] {
        let network = network.into();
        self.forward_layers(network, packing);
        self.head.score(network, packing, temperature);
        &self.head.statistics
    }

    pub(crate) fn forward_layers(&mut self, network: Network<'_, T>, packing: &Packing) {
        let Parameters { config, layout, data } = network.parameters;
        let (tokens, hidden) = (packing.tokens.len(), config.hidden_size);
        self.rope.extend_to(packing.longest());
        self.residual.iter_mut().for_each(|buffer| grow(buffer, tokens * hidden));
        self.activations.iter_mut().for_each(|kept| kept.resize(config, tokens));
        self.place_rows(network, packing);
        let embedding = &data[layout.embedding.clone()];
        for (row, &token) in self.residual[0].chunks_exact_mut(hidden).zip(&packing.tokens) {
            let (table, index) = match network.pictures {
                Some(pictures) if token >= FIRST_PICTURE_TOKEN => {
                    (&pictures.features[..], pictures.row(token))
                }
                _ => (embedding, token as usize),
            };
            row.copy_from_slice(&table[index * hidden..][..hidden]);
        }
        let all = packing.everything();
        for (index, layer) in layout.layers.iter().enumerate() {
            let (before, after) = around(&mut self.residual, index);
            let kept = if self.recompute { 0 } else { index };
            let pass = Pass { network, config, data, index, layer, packing, rows: &all, bf16: self.bf16 };
            let scratch = &mut self.scratch;
            pass.forward(before, after, &mut self.activations[kept], &self.rope, scratch);
        }
        let last = config.num_hidden_layers % self.residual.len();
        self.head.gather(network.parameters, packing, &self.residual[last]);
    }

    fn place_rows(&mut self, network: Network<'_, T>, packing: &Packing) {
        let any = packing.tokens.iter().any(|&token| token >= FIRST_PICTURE_TOKEN);
        match (network.pictures, &network.parameters.config.vision) {
            (Some(pictures), Some(vision)) if any => {
                let places = packing.places(|before, token| pictures.table.place_after(before, token));
                self.rope.set_places(&places, vision.mrope_section);
            }
            _ => self.rope.set_places(&[], [0; 3]),
        }
    }

    pub(crate) fn begin_backward<'a>(
        &mut self,
        network: impl std::convert::Into<Network<'a, T>>,
        packing: &Packing,
    ) {
        self.head.begin_backward(packing.outputs.len(), network.into().parameters.config.hidden_size);
    }

    /// Backpropagates through the output layer, with `derivatives` as in
    /// `Passes::backward_outputs`.
    pub(crate) fn backward_outputs<'a>(
        &mut self,
        network: impl std::convert::Into<Network<'a, T>>,
        packing: &Packing,
        wanted: &[bool],
        derivatives: &[[T; 2]],
        gradient: &mut [T],
    ) {
        let outputs = packing.outputs_of(wanted);
        self.head.backward(network.into(), packing, &outputs, derivatives, gradient);
    }

    /// Backpropagates through the layers for the `wanted` sequences.
    ///
    /// Overwrites stored values, so each row may take part in only one call. Sequences that share a
    /// row must be in the same call.
    pub(crate) fn backward_layers<'a>(
        &mut self,
        network: impl std::convert::Into<Network<'a, T>>,
        packing: &Packing,
        wanted: &[bool],
        gradient: &mut [T],
    ) {
        let network = network.into();
        let Parameters { config, layout, data } = network.parameters;
        let hidden = config.hidden_size;
        let selection = packing.select(wanted);
        let count = packing.tokens.len();
        let longest = selection.runs.iter().map(|run| run.rows.len()).max().unwrap_or(0);
        grow(&mut self.d_residual, count * hidden);
        grow(&mut self.d_hidden, count * hidden.max(config.query_width()));
        grow(&mut self.d_qkv, count * (config.query_width() + 2 * config.key_value_width()));
        grow(&mut self.d_inner, longest * config.intermediate_size);
        for run in &selection.runs {
            self.d_residual[rows(&run.rows, hidden)].fill(T::ZERO);
        }
        let d_residual = &mut self.d_residual;
        self.head.finish_backward(network, &packing.outputs_of(wanted), gradient, |output, row| {
            d_residual[packing.outputs[output] * hidden..][..hidden].copy_from_slice(row);
        });
        for (index, layer) in layout.layers.iter().enumerate().rev() {
            let rows = &selection;
            let pass = Pass { network, config, data, index, layer, packing, rows, bf16: self.bf16 };
            let kept = if self.recompute { 0 } else { index };
            if self.recompute && (index + 1 < layout.layers.len() || !selection.whole) {
                let (before, after) = self.residual.split_at_mut(index + 1);
                let scratch = &mut self.scratch;
                pass.forward(&before[index], &mut after[0], &mut self.activations[0], &self.rope, scratch);
            }
            pass.backward(
                &self.residual[index],
                &mut self.activations[kept],
                &self.rope,
                Derivatives {
                    residual: &mut self.d_residual,
                    hidden: &mut self.d_hidden,
                    qkv: &mut self.d_qkv,
                    inner: &mut self.d_inner,
                    gradient,
                    scratch: &mut self.scratch,
                },
            );
        }
        let Some(d_embedding) = network.gradient_of(&layout.embedding, gradient) else { return };
        if let Some(pictures) = network.pictures {
            grow(&mut self.d_pictures, pictures.features.len());
        }
        for run in selection.runs {
            let d_rows = self.d_residual[rows(&run.rows, hidden)].chunks_exact(hidden);
            for (row, &token) in d_rows.zip(&packing.tokens[run.rows]) {
                let (table, index) = match network.pictures {
                    Some(pictures) if token >= FIRST_PICTURE_TOKEN => {
                        (&mut self.d_pictures[..], pictures.row(token))
                    }
                    _ => (&mut *d_embedding, token as usize),
                };
                add_assign(&mut table[index * hidden..][..hidden], row);
            }
        }
    }
}

fn around<T>(residual: &mut [Vec<T>], layer: usize) -> (&[T], &mut [T]) {
    let (before, after) = (layer % residual.len(), (layer + 1) % residual.len());
    if before < after {
        let (left, right) = residual.split_at_mut(after);
        (&left[before], &mut right[0])
    } else {
        let (left, right) = residual.split_at_mut(before);
        (&right[0], &mut left[after])
    }
}

#[cfg(test)]
#[path = "decoder_tests.rs"]
pub(crate) mod tests;
