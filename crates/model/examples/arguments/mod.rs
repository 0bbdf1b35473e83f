//! Arguments of examples, as `name=value`.
#![allow(dead_code, reason = "each example uses some of these")]

use turnwise_core::{Purpose, Seed};
use turnwise_model::{Compute, Device, ModelConfig, ParameterLayout, Parameters};

pub(crate) struct Arguments(Vec<String>);

impl Arguments {
    pub(crate) fn read() -> Self {
        Self(std::env::args().skip(1).collect())
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='))
    }

    /// Returns the whole number of a name, or `default`.
    ///
    /// # Errors
    /// If the value is not a whole number.
    pub(crate) fn number(&self, name: &str, default: usize) -> Result<usize, String> {
        match self.text(name) {
            Some(value) => value.parse().map_err(|_| format!("{name}={value} is not a whole number")),
            None => Ok(default),
        }
    }

    /// Returns the comma-separated whole numbers of a name, or only `default`.
    ///
    /// # Errors
    /// If a value is not a whole number.
    pub(crate) fn numbers(&self, name: &str, default: usize) -> Result<Vec<usize>, String> {
        let Some(text) = self.text(name) else { return Ok(vec![default]) };
        let number =
            |value: &str| value.parse().map_err(|_| format!("{name}: {value} is not a whole number"));
        text.split(',').map(number).collect()
    }

    /// Returns `compute=f32|bf16`, f32 by default.
    ///
    /// # Errors
    /// If the value is neither.
    pub(crate) fn compute(&self) -> Result<Compute, String> {
        match self.text("compute") {
            None | Some("f32") => Ok(Compute::F32),
            Some("bf16") => Ok(Compute::Bf16),
            Some(other) => Err(format!("compute={other}: expected f32 or bf16")),
        }
    }

    /// Returns `device=cpu|cuda`, the CPU by default.
    ///
    /// # Errors
    /// If the value is neither.
    pub(crate) fn device(&self) -> Result<Device, String> {
        match self.text("device") {
            None | Some("cpu") => Ok(Device::Cpu),
            Some("cuda") => Ok(Device::Cuda),
            Some(other) => Err(format!("device={other}: expected cpu or cuda")),
        }
    }

    /// Returns the architecture named by `shape=NAME`, with room for `context` tokens; `None`
    /// without a name.
    ///
    /// # Errors
    /// If the name is unknown.
    pub(crate) fn shape(&self, context: usize) -> Result<Option<ModelConfig>, String> {
        let Some(name) = self.text("shape") else { return Ok(None) };
        let found = SHAPES.iter().find(|shape| shape.0 == name);
        let &(_, [hidden, layers, heads, kv, head_dim, ffn, vocab]) = found.ok_or_else(|| {
            format!("shape={name} is not known; there are {:?}", SHAPES.map(|shape| shape.0))
        })?;
        let model_type = match name {
            "qwen3-4b" => turnwise_model::Family::Qwen3,
            "smollm2-135m" => turnwise_model::Family::Llama,
            _ => turnwise_model::Family::Qwen2,
        };
        Ok(Some(ModelConfig {
            model_type,
            vocab_size: vocab,
            hidden_size: hidden,
            intermediate_size: ffn,
            num_hidden_layers: layers,
            num_attention_heads: heads,
            num_key_value_heads: kv,
            head_dim,
            max_position_embeddings: context,
            rope_theta: 1e6,
            tie_word_embeddings: true,
            ..ModelConfig::default()
        }))
    }
}

/// Names, each with hidden size, layers, query heads, key heads, head width, FFN width and
/// vocabulary.
const SHAPES: [(&str, [usize; 7]); 4] = [
    ("qwen2.5-0.5b", [896, 24, 14, 2, 64, 4864, 151_936]),
    ("qwen2.5-1.5b", [1536, 28, 12, 2, 128, 8960, 151_936]),
    ("qwen3-4b", [2560, 36, 32, 8, 128, 9728, 151_936]),
    ("smollm2-135m", [576, 30, 9, 3, 64, 1536, 49_152]),
];

/// Returns random weights with standard deviation 0.02 and norms of 1. Fast for billions of
/// weights: runs of a million draws repeat at other offsets.
pub(crate) fn random_weights(config: ModelConfig) -> Parameters<f32> {
    let layout = ParameterLayout::new(&config);
    let mut rng = Seed::derive(0, Purpose::Init, &[]).rng();
    let draws: Vec<f32> = (0..1 << 20).map(|_| 0.02 * rng.normal() as f32).collect();
    let mut data = vec![1.0; layout.len];
    for tensor in layout.tensors.iter().filter(|tensor| tensor.decays) {
        for piece in data[tensor.range.clone()].chunks_mut(draws.len() / 2) {
            let first = rng.below(draws.len() / 2);
            piece.copy_from_slice(&draws[first..first + piece.len()]);
        }
    }
    Parameters { config, layout, data }
}

pub(crate) fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied().unwrap_or(f64::NAN)
}
