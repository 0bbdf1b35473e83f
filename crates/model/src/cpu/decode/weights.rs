use std::borrow::Cow;

use super::matmul::Packed;
use super::projection::{Beside, Projection};
use super::vision::EngineVision;
use crate::backend::Network;
use crate::ops::attention::Heads;
use crate::pictures::FIRST_PICTURE_TOKEN;
use crate::weights::lora::{Joint, Module};
use crate::weights::tower_weights;
use crate::{Compute, LayerLayout, ModelConfig, ModelError, Parameters, Rotary, Weights};

/// A decoder's weights, packed once and shared by engines on several threads.
#[derive(Debug)]
pub struct EngineWeights {
    pub(super) version: u64,
    pub(super) heads: Heads,
    pub(super) hidden: usize,
    pub(super) intermediate: usize,
    pub(super) vocab: usize,
    pub(crate) max_positions: usize,
    pub(super) rotary: Rotary,
    pub(super) epsilon: f32,
    /// `[vocabulary, hidden]`; `None` if [`EngineWeights::embeds_by_output`].
    embedding: Option<Vec<f32>>,
    pub(super) layers: Vec<LayerWeights>,
    pub(super) final_norm: Vec<f32>,
    pub(super) output: Packed,
    pub(super) vision: Option<EngineVision>,
}

/// One layer, in which projections of the same input are joined into one matrix.
#[derive(Debug)]
pub(super) struct LayerWeights {
    pub(super) input_norm: Vec<f32>,
    pub(super) qkv: Projection,
    /// Weights of the query heads' norm, then of the key heads' norm; empty if the family has
    /// neither.
    pub(super) qk_norm: Vec<f32>,
    pub(super) o: Projection,
    pub(super) post_norm: Vec<f32>,
    pub(super) gate_up: Projection,
    pub(super) down: Projection,
}

impl EngineWeights {
    /// Returns an upper bound on the bytes of packed weights, without norms and biases.
    pub(crate) fn bytes(config: &ModelConfig, rank: usize, compute: Compute) -> usize {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let (query, key_value) = (config.query_width(), config.key_value_width());
        let packed = |inputs, outputs| Packed::bytes(inputs, outputs, compute);
        let layer = packed(hidden, query + 2 * key_value)
            + packed(query, hidden)
            + packed(hidden, 2 * inner)
            + packed(inner, hidden);
        let embedding = if Self::embeds_by_output(config, compute) {
            0
        } else {
            config.vocab_size * hidden * size_of::<f32>()
        };
        let beside = if Beside::is_used(compute) { Beside::bytes(config, rank) } else { 0 };
        let tower = tower_weights(config) * size_of::<f32>();
        config.num_hidden_layers * layer + beside + embedding + tower + packed(hidden, config.vocab_size)
    }

    /// Returns true if the packed output layer holds the embedding exactly.
    fn embeds_by_output(config: &ModelConfig, compute: Compute) -> bool {
        config.tie_word_embeddings && compute.kernel().is_none()
    }

    /// Packs a model for `f32` products. Completions report `version`.
    ///
    /// # Errors
    /// Fails if [`ModelConfig::check`] rejects the config or the number of weights is wrong.
    pub fn pack(parameters: &Parameters<f32>, version: u64) -> Result<Self, ModelError> {
        Self::pack_network(parameters.into(), version, Compute::F32, false)
    }

    /// Packs weights with the adapter merged, so that the adapter costs nothing in decoding.
    /// Merging takes `2 rank` operations per adapted weight and memory for one more layer.
    ///
    /// If `compute` is bf16 and the CPU supports it, matrices are rounded once and take half the
    /// memory. The adapter then stays separate in `f32`, because rounding would lose its updates.
    /// Keys, values, softmax and logits are always `f32`.
    ///
    /// # Errors
    /// Fails like [`EngineWeights::pack`], or if the adapter was made for another architecture.
    pub fn of(weights: &Weights, version: u64, compute: Compute) -> Result<Self, ModelError> {
        Self::pack_network(weights.into(), version, compute, Beside::is_used(compute))
    }

    pub(super) fn embed(&self, token: u32, to: &mut Vec<f32>) {
        if token >= FIRST_PICTURE_TOKEN {
            return match &self.vision {
                Some(vision) => vision.embed(token, to),
                None => to.resize(to.len() + self.hidden, 0.0),
            };
        }
        let token = token as usize;
        match &self.embedding {
            Some(embedding) => to.extend_from_slice(&embedding[token * self.hidden..][..self.hidden]),
            None => self.output.append_row(token, to),
        }
    }

    /// Packs a network, with the adapter separate if `apart`, otherwise merged.
    pub(crate) fn pack_network(
        network: Network<'_, f32>,
        version: u64,
        compute: Compute,
        apart: bool,
    ) -> Result<Self, ModelError> {
        let parameters = network.parameters;
        let config = &parameters.config;
        config.check()?;
        if let Some(adapter) = network.adapter {
            adapter.check_base(config)?;
        }
        let layout = &parameters.layout;
        if parameters.data.len() != layout.len {
            return Err(ModelError::Config {
                key: "hidden_size".into(),
                reason: format!("{} weights, {} expected by the layout", parameters.data.len(), layout.len),
            });
        }
        let at = |range: &std::ops::Range<usize>| &parameters.data[range.clone()];
        let optional = |range: &Option<std::ops::Range<usize>>| range.as_ref().map_or(&[][..], at);
        let matrix = |index: usize, layer: &LayerLayout, module: Module| {
            let weight = at(&module.weight(layer));
            let merged =
                network.adapter.filter(|_| !apart).and_then(|adapter| adapter.merged(index, module, weight));
            merged.map_or(Cow::Borrowed(weight), Cow::Owned)
        };
        let hidden = config.hidden_size;
        // On all cores, because packing follows every update; by layer, to hold few merged
        // matrices.
        let layers = layout.layers.iter().enumerate().map(|(index, layer)| {
            let pack = |joint: Joint, bias: &[f32]| {
                let modules = joint.modules();
                let matrices: Vec<_> = modules.iter().map(|&module| matrix(index, layer, module)).collect();
                let beside = network.adapter.filter(|_| apart);
                let beside = beside.and_then(|adapter| Beside::of(adapter, index, joint));
                Projection::new(Packed::new(modules[0].inputs(config), &matrices, &[bias], compute), beside)
            };
            let qkv = || pack(Joint::Qkv, optional(&layer.qkv_bias()));
            let o = || pack(Joint::Output, optional(&layer.o_bias));
            let gate_up = || pack(Joint::GateUp, optional(&layer.gate_up_bias()));
            let down = || pack(Joint::Down, optional(&layer.down_bias));
            let ((qkv, o), (gate_up, down)) =
                rayon::join(|| rayon::join(qkv, o), || rayon::join(gate_up, down));
            LayerWeights {
                input_norm: at(&layer.input_norm).to_vec(),
                qkv,
                qk_norm: optional(&layer.qk_norm()).to_vec(),
                o,
                post_norm: at(&layer.post_norm).to_vec(),
                gate_up,
                down,
            }
        });
        let (layers, output) =
            rayon::join(|| layers.collect(), || Packed::new(hidden, &[at(&layout.output)], &[], compute));
        Ok(Self {
            version,
            heads: Heads::of(config),
            hidden,
            intermediate: config.intermediate_size,
            vocab: config.vocab_size,
            max_positions: config.max_position_embeddings,
            rotary: config.rotary(),
            epsilon: config.rms_norm_eps as f32,
            embedding: (!Self::embeds_by_output(config, compute)).then(|| at(&layout.embedding).to_vec()),
            layers,
            final_norm: at(&layout.final_norm).to_vec(),
            output,
            vision: config
                .vision
                .as_ref()
                .zip(layout.vision.as_ref())
                .map(|(vision, range)| EngineVision::new(vision.clone(), hidden, at(range).to_vec())),
        })
    }
}
