//! Weights prepared for sampling.

use std::borrow::Cow;
use std::sync::Arc;

use super::matmul::Packed;
use super::projection::{Beside, Projection};
use super::vision::EngineVision;
use crate::lora::{Joint, Module};
use crate::ops::attention::Heads;
use crate::plan::tower_weights;
use crate::vision::FIRST_PICTURE_TOKEN;
use crate::weights::Network;
use crate::{Compute, Device, LayerLayout, ModelConfig, ModelError, Parameters, Rotary, Weights};

/// Weights shared by engines.
#[derive(Clone)]
pub enum SharedWeights {
    /// Packed weights for the CPU.
    Host(Arc<EngineWeights>),
    /// The learner's weights on a device, used without a copy.
    #[cfg(feature = "cuda")]
    Cuda(crate::cuda::DeviceWeights),
}

impl SharedWeights {
    /// Prepares weights for engines on a device; completions report `version`. A device ignores
    /// `compute`.
    ///
    /// # Errors
    /// On the CPU, fails like [`EngineWeights::of`]. On a device, fails if this build does not
    /// support it, none is present, or it cannot run the model's shape or hold it.
    pub fn of(weights: &Weights, version: u64, device: Device, compute: Compute) -> Result<Self, ModelError> {
        weights.config().check_device(device)?;
        #[cfg(feature = "cuda")]
        if device == Device::Cuda {
            let weights = crate::cuda::DeviceWeights::upload(weights, version);
            return Ok(Self::Cuda(weights.map_err(crate::cuda::CudaError::into_setting)?));
        }
        Ok(Self::Host(Arc::new(EngineWeights::of(weights, version, compute)?)))
    }
}

/// A decoder's weights, packed once and shared by engines on several threads.
#[derive(Debug)]
pub struct EngineWeights {
    pub(super) version: u64,
    pub(super) heads: Heads,
    pub(super) hidden: usize,
    pub(super) intermediate: usize,
    pub(super) vocab: usize,
    pub(super) max_positions: usize,
    pub(super) rotary: Rotary,
    pub(super) epsilon: f32,
    /// `[vocabulary, hidden]`; `None` if [`EngineWeights::embeds_by_output`] is true.
    embedding: Option<Vec<f32>>,
    pub(super) layers: Vec<LayerWeights>,
    pub(super) final_norm: Vec<f32>,
    pub(super) output: Packed,
    pub(super) vision: Option<EngineVision>,
}

/// One layer, with projections of the same input concatenated.
#[derive(Debug)]
pub(super) struct LayerWeights {
    pub(super) input_norm: Vec<f32>,
    pub(super) qkv: Projection,
    /// Norm of query heads, then of key heads; empty if the family has none.
    pub(super) qk_norm: Vec<f32>,
    pub(super) o: Projection,
    pub(super) post_norm: Vec<f32>,
    pub(super) gate_up: Projection,
    pub(super) down: Projection,
}

impl EngineWeights {
    /// Returns the maximum size in bytes of packed weights with an adapter of this rank (0 for
    /// none), without norms and biases.
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

    /// Returns true if the packed output layer equals the embedding bit for bit, so one copy
    /// suffices.
    fn embeds_by_output(config: &ModelConfig, compute: Compute) -> bool {
        config.tie_word_embeddings && compute.kernel().is_none()
    }

    /// Packs weights for `f32` products; completions report `version`.
    ///
    /// # Errors
    /// Fails if [`ModelConfig::check`] rejects the config, or the number of weights differs from
    /// the layout's.
    pub fn pack(parameters: &Parameters<f32>, version: u64) -> Result<Self, ModelError> {
        Self::pack_network(parameters.into(), version, Compute::F32, false)
    }

    /// Packs weights with their adapter merged, so sampling costs the same as without an adapter.
    /// Merging takes `2 rank` operations per adapted weight and memory for one more layer.
    ///
    /// With a supported bf16 `compute`, matrices take half the memory, and the adapter stays
    /// separate in `f32`, because rounding would lose its updates. Keys, values, softmax and logits
    /// stay `f32`.
    ///
    /// # Errors
    /// Fails like [`EngineWeights::pack`], and if the adapter was made for another architecture.
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
        // Uses all cores, because weights are packed after every update. Handles one layer at a
        // time to limit the memory of merged matrices.
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
