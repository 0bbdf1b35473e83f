//! A decoder's weights in one flat buffer.
//!
//! Gradients, optimizer moments and checkpoints share the buffer's layout. Names and shapes follow
//! Hugging Face; a linear weight is `[out, in]`, row-major.

use std::ops::Range;

use super::vision::VisionLayout;
use crate::{ModelConfig, Real};

/// Name, shape and range of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Checkpoint name, such as `model.layers.0.self_attn.q_proj.weight`.
    pub name: String,
    /// Outermost dimension first.
    pub shape: Vec<usize>,
    /// Range in the buffer.
    pub range: Range<usize>,
    /// True if weight decay applies (matrices, not norms or biases).
    pub decays: bool,
}

/// Ranges of one layer's tensors in the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerLayout {
    /// Norm before attention, `[hidden]`.
    pub input_norm: Range<usize>,
    /// Query projection, `[query_width, hidden]`.
    pub q_weight: Range<usize>,
    /// Key projection, `[key_value_width, hidden]`; directly after `q_weight`.
    pub k_weight: Range<usize>,
    /// Value projection, `[key_value_width, hidden]`; directly after `k_weight`.
    pub v_weight: Range<usize>,
    /// Query bias, `[query_width]`, if any.
    pub q_bias: Option<Range<usize>>,
    /// Key bias, `[key_value_width]`; directly after `q_bias`.
    pub k_bias: Option<Range<usize>>,
    /// Value bias, `[key_value_width]`; directly after `k_bias`.
    pub v_bias: Option<Range<usize>>,
    /// Norm of each query head, `[head_dim]`, if any.
    pub q_norm: Option<Range<usize>>,
    /// Norm of each key head, `[head_dim]`; directly after `q_norm`.
    pub k_norm: Option<Range<usize>>,
    /// Output projection, `[hidden, query_width]`.
    pub o_weight: Range<usize>,
    /// Output bias, `[hidden]`, if any.
    pub o_bias: Option<Range<usize>>,
    /// Norm before the MLP, `[hidden]`.
    pub post_norm: Range<usize>,
    /// Gate projection, `[intermediate, hidden]`.
    pub gate_weight: Range<usize>,
    /// Up projection, `[intermediate, hidden]`; directly after `gate_weight`.
    pub up_weight: Range<usize>,
    /// Gate bias, `[intermediate]`, if any.
    pub gate_bias: Option<Range<usize>>,
    /// Up bias, `[intermediate]`; directly after `gate_bias`.
    pub up_bias: Option<Range<usize>>,
    /// Down projection, `[hidden, intermediate]`.
    pub down_weight: Range<usize>,
    /// Down bias, `[hidden]`, if any.
    pub down_bias: Option<Range<usize>>,
}

impl LayerLayout {
    /// Query, key and value projections as one matrix, `[query_width + 2 key_value_width, hidden]`.
    pub(crate) fn qkv_weight(&self) -> Range<usize> {
        self.q_weight.start..self.v_weight.end
    }

    /// Query, key and value biases as one vector.
    pub(crate) fn qkv_bias(&self) -> Option<Range<usize>> {
        Some(self.q_bias.as_ref()?.start..self.v_bias.as_ref()?.end)
    }

    /// Query and key norms as one vector, `[2 head_dim]`.
    pub(crate) fn qk_norm(&self) -> Option<Range<usize>> {
        Some(self.q_norm.as_ref()?.start..self.k_norm.as_ref()?.end)
    }

    /// Gate and up projections as one matrix, `[2 intermediate, hidden]`.
    pub(crate) fn gate_up_weight(&self) -> Range<usize> {
        self.gate_weight.start..self.up_weight.end
    }

    /// Gate and up biases as one vector.
    pub(crate) fn gate_up_bias(&self) -> Option<Range<usize>> {
        Some(self.gate_bias.as_ref()?.start..self.up_bias.as_ref()?.end)
    }
}

/// Ranges of a decoder's tensors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParameterLayout {
    /// Token embedding, `[vocab, hidden]`.
    pub embedding: Range<usize>,
    /// Layers in forward order.
    pub layers: Vec<LayerLayout>,
    /// Norm after the last layer, `[hidden]`.
    pub final_norm: Range<usize>,
    /// Output layer, `[vocab, hidden]`. This range equals `embedding` if the output layer is tied,
    /// and in critics, which have no output layer.
    pub output: Range<usize>,
    /// A critic's value head: `[hidden]` weights and one bias.
    pub value: Option<Range<usize>>,
    /// Vision tower, if any.
    pub vision: Option<Range<usize>>,
    /// Tensors in buffer order.
    pub tensors: Vec<TensorInfo>,
    /// Buffer length.
    pub len: usize,
}

impl ParameterLayout {
    /// Returns a policy's layout.
    pub fn new(config: &ModelConfig) -> Self {
        Self::with_head(config, false)
    }

    /// Returns a critic's layout: a value head replaces the output layer. Names follow
    /// `transformers`' token classification models.
    pub fn critic(config: &ModelConfig) -> Self {
        Self::with_head(config, true)
    }

    fn with_head(config: &ModelConfig, critic: bool) -> Self {
        let mut builder = TensorList::default();
        let hidden = config.hidden_size;
        let (query, key_value) = (config.query_width(), config.key_value_width());
        let intermediate = config.intermediate_size;
        let (qkv_bias, output_bias) = (config.qkv_bias(), config.output_bias());
        let (qk_norm, mlp_bias) = (config.qk_norm(), config.mlp_bias);
        let embedding = builder.add("model.embed_tokens.weight", &[config.vocab_size, hidden]);
        let layers = (0..config.num_hidden_layers)
            .map(|index| {
                let mut add =
                    |name: &str, shape: &[usize]| builder.add(&format!("model.layers.{index}.{name}"), shape);
                // Tensors are placed in this order.
                LayerLayout {
                    input_norm: add("input_layernorm.weight", &[hidden]),
                    q_weight: add("self_attn.q_proj.weight", &[query, hidden]),
                    k_weight: add("self_attn.k_proj.weight", &[key_value, hidden]),
                    v_weight: add("self_attn.v_proj.weight", &[key_value, hidden]),
                    q_bias: qkv_bias.then(|| add("self_attn.q_proj.bias", &[query])),
                    k_bias: qkv_bias.then(|| add("self_attn.k_proj.bias", &[key_value])),
                    v_bias: qkv_bias.then(|| add("self_attn.v_proj.bias", &[key_value])),
                    q_norm: qk_norm.then(|| add("self_attn.q_norm.weight", &[config.head_dim])),
                    k_norm: qk_norm.then(|| add("self_attn.k_norm.weight", &[config.head_dim])),
                    o_weight: add("self_attn.o_proj.weight", &[hidden, query]),
                    o_bias: output_bias.then(|| add("self_attn.o_proj.bias", &[hidden])),
                    post_norm: add("post_attention_layernorm.weight", &[hidden]),
                    gate_weight: add("mlp.gate_proj.weight", &[intermediate, hidden]),
                    up_weight: add("mlp.up_proj.weight", &[intermediate, hidden]),
                    gate_bias: mlp_bias.then(|| add("mlp.gate_proj.bias", &[intermediate])),
                    up_bias: mlp_bias.then(|| add("mlp.up_proj.bias", &[intermediate])),
                    down_weight: add("mlp.down_proj.weight", &[hidden, intermediate]),
                    down_bias: mlp_bias.then(|| add("mlp.down_proj.bias", &[hidden])),
                }
            })
            .collect();
        let final_norm = builder.add("model.norm.weight", &[hidden]);
        let output = if critic || config.tie_word_embeddings {
            embedding.clone()
        } else {
            builder.add("lm_head.weight", &[config.vocab_size, hidden])
        };
        let value = critic.then(|| {
            let weight = builder.add("score.weight", &[1, hidden]);
            weight.start..builder.add("score.bias", &[1]).end
        });
        let vision = config.vision.as_ref();
        let vision = vision.map(|vision| VisionLayout::add(&mut builder, vision, hidden).all());
        Self {
            embedding,
            layers,
            final_norm,
            output,
            value,
            vision,
            tensors: builder.tensors,
            len: builder.len,
        }
    }
}

pub(crate) fn tower_weights(config: &ModelConfig) -> usize {
    ParameterLayout::new(config).vision.map_or(0, |tower| tower.len())
}

/// Adjacent tensors in a flat buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TensorList {
    /// Tensors in buffer order.
    pub tensors: Vec<TensorInfo>,
    /// Buffer length.
    pub len: usize,
}

impl TensorList {
    /// Appends a tensor; weight decay applies if it has several dimensions.
    pub fn add(&mut self, name: &str, shape: &[usize]) -> Range<usize> {
        let range = self.len..self.len + shape.iter().product::<usize>();
        self.len = range.end;
        self.tensors.push(TensorInfo {
            name: name.into(),
            shape: shape.to_vec(),
            range: range.clone(),
            decays: shape.len() > 1,
        });
        range
    }
}

/// A decoder's config, layout and weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters<T> {
    /// The architecture.
    pub config: ModelConfig,
    /// Ranges of the tensors.
    pub layout: ParameterLayout,
    /// Flat weights.
    pub data: Vec<T>,
}

impl<T: Real> Parameters<T> {
    /// Returns a policy of zeros.
    pub fn zeros(config: ModelConfig) -> Self {
        let layout = ParameterLayout::new(&config);
        let data = vec![T::ZERO; layout.len];
        Self { config, layout, data }
    }

    /// Returns a critic of zeros.
    pub fn critic(config: ModelConfig) -> Self {
        let layout = ParameterLayout::critic(&config);
        let data = vec![T::ZERO; layout.len];
        Self { config, layout, data }
    }

    /// Returns a critic with this policy's layers and a zero value head.
    pub fn to_critic(&self) -> Self {
        let mut critic = Self::critic(self.config.clone());
        let ranges = critic.layout.tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.range.clone()));
        for (name, range) in ranges {
            if let Some(values) = self.tensor(name) {
                critic.data[range].copy_from_slice(values);
            }
        }
        critic
    }

    /// Converts the weights' type.
    pub fn cast<U: Real>(&self) -> Parameters<U> {
        Parameters {
            config: self.config.clone(),
            layout: self.layout.clone(),
            data: self.data.iter().map(|value| U::from_f64(value.to_f64())).collect(),
        }
    }

    /// Returns a tensor by its checkpoint name.
    pub fn tensor(&self, name: &str) -> Option<&[T]> {
        let info = self.layout.tensors.iter().find(|info| info.name == name)?;
        self.data.get(info.range.clone())
    }

    /// Returns a mutable tensor by name.
    pub fn tensor_mut(&mut self, name: &str) -> Option<&mut [T]> {
        let info = self.layout.tensors.iter().find(|info| info.name == name)?;
        self.data.get_mut(info.range.clone())
    }
}

impl Parameters<f32> {
    /// Returns the CRC-32C of the weights, which shows whether files that depend on these weights,
    /// such as adapters, still match them.
    pub fn checksum(&self) -> u32 {
        crc32c::crc32c(bytemuck::cast_slice(&self.data))
    }
}
