//! The architecture, as Hugging Face's `config.json` spells it.

use serde::{Deserialize, Serialize};

use crate::ModelError;

/// Shape of a Qwen2-family decoder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// Family; `qwen2` is what this crate runs today.
    pub model_type: String,
    /// Rows of the embedding. May exceed the tokenizer's size (padding).
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width inside the gated MLP.
    pub intermediate_size: usize,
    /// Decoder layers.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key/value heads; query heads share them in equal runs.
    pub num_key_value_heads: usize,
    /// Longest sequence the model was made for.
    pub max_position_embeddings: usize,
    /// Epsilon inside the root mean square norm.
    pub rms_norm_eps: f64,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Whether the output layer is the embedding transposed.
    pub tie_word_embeddings: bool,
    /// Standard deviation of the initial weights.
    #[serde(default = "default_initializer_range")]
    pub initializer_range: f64,
}

fn default_initializer_range() -> f64 {
    0.02
}

impl ModelConfig {
    /// Width of one attention head.
    pub fn head_dim(&self) -> usize {
        self.hidden_size / self.num_attention_heads
    }

    /// Width of all query heads together.
    pub fn query_width(&self) -> usize {
        self.num_attention_heads * self.head_dim()
    }

    /// Width of all key (or value) heads together.
    pub fn key_value_width(&self) -> usize {
        self.num_key_value_heads * self.head_dim()
    }

    /// Refuses shapes that cannot be run, naming the key.
    pub fn check(&self) -> Result<(), ModelError> {
        let fail = |key: &str, reason: String| Err(ModelError::Config { key: key.into(), reason });
        if self.model_type != "qwen2" {
            return fail("model_type", format!("`{}` is not supported; supported: qwen2", self.model_type));
        }
        for (key, value) in [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.num_key_value_heads),
            ("max_position_embeddings", self.max_position_embeddings),
        ] {
            if value == 0 {
                return fail(key, "must be at least 1".into());
            }
        }
        if !self.hidden_size.is_multiple_of(self.num_attention_heads) {
            return fail(
                "hidden_size",
                format!(
                    "{} is not a multiple of num_attention_heads = {}",
                    self.hidden_size, self.num_attention_heads
                ),
            );
        }
        if !self.num_attention_heads.is_multiple_of(self.num_key_value_heads) {
            return fail(
                "num_attention_heads",
                format!(
                    "{} is not a multiple of num_key_value_heads = {}",
                    self.num_attention_heads, self.num_key_value_heads
                ),
            );
        }
        if !self.head_dim().is_multiple_of(2) {
            return fail(
                "hidden_size",
                format!("the head width {} is odd; rotary embedding needs pairs", self.head_dim()),
            );
        }
        Ok(())
    }
}
