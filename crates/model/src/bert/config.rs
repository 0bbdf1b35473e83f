use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::{ModelError, files};

/// Activation of the MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x Phi(x)` with the exact normal CDF.
    Gelu,
    /// GELU's tanh approximation.
    GeluTanh,
    /// `max(x, 0)`.
    Relu,
}

/// Shape of a BERT.
#[derive(Clone, Debug, PartialEq)]
pub struct BertConfig {
    /// Size of the vocabulary.
    pub vocab_size: usize,
    /// Width of hidden states.
    pub hidden_size: usize,
    /// Width of the MLP.
    pub intermediate_size: usize,
    /// Number of layers.
    pub layers: usize,
    /// Number of attention heads.
    pub heads: usize,
    /// Maximum sequence length.
    pub max_positions: usize,
    /// Number of token types, of which only the first is used.
    pub types: usize,
    /// LayerNorm's epsilon, added to the variance.
    pub epsilon: f64,
    /// Activation of the MLP.
    pub activation: Activation,
}

#[derive(Deserialize)]
struct Raw {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    max_position_embeddings: usize,
    #[serde(default = "two")]
    type_vocab_size: usize,
    #[serde(default = "epsilon")]
    layer_norm_eps: f64,
    #[serde(default = "gelu")]
    hidden_act: String,
    position_embedding_type: Option<String>,
}

fn two() -> usize {
    2
}

fn epsilon() -> f64 {
    1e-12
}

fn gelu() -> String {
    "gelu".to_owned()
}

impl BertConfig {
    /// Reads a folder's `config.json`.
    ///
    /// # Errors
    ///
    /// Fails if the model is not a BERT, a required number is missing, or the activation or
    /// position type is unknown.
    pub fn load(folder: &Path) -> Result<Self, ModelError> {
        let path = folder.join("config.json");
        let wrong = |reason: String| ModelError::file(&path, reason);
        let value: Value =
            serde_json::from_slice(&files::read(&path)?).map_err(|error| wrong(error.to_string()))?;
        let kind = value.get("model_type").and_then(Value::as_str).unwrap_or("bert");
        if kind != "bert" {
            return Err(wrong(format!("model_type: `{kind}` is no encoder that is known; only `bert` is")));
        }
        let raw: Raw = serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
        if let Some(other) = raw.position_embedding_type.filter(|kind| kind != "absolute") {
            return Err(wrong(format!(
                "position_embedding_type: `{other}` is not known; only `absolute` is"
            )));
        }
        let activation = match raw.hidden_act.as_str() {
            "gelu" => Activation::Gelu,
            "gelu_new" | "gelu_pytorch_tanh" => Activation::GeluTanh,
            "relu" => Activation::Relu,
            other => {
                return Err(wrong(format!(
                    "hidden_act: `{other}` is not known; gelu, gelu_new and relu are"
                )));
            }
        };
        let config = Self {
            vocab_size: raw.vocab_size,
            hidden_size: raw.hidden_size,
            intermediate_size: raw.intermediate_size,
            layers: raw.num_hidden_layers,
            heads: raw.num_attention_heads,
            max_positions: raw.max_position_embeddings,
            types: raw.type_vocab_size,
            epsilon: raw.layer_norm_eps,
            activation,
        };
        config.check().map_err(wrong)?;
        Ok(config)
    }

    /// Returns an error with the reason if the config is not a supported BERT.
    pub(crate) fn check(&self) -> Result<(), String> {
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.layers),
            ("num_attention_heads", self.heads),
            ("max_position_embeddings", self.max_positions),
            ("type_vocab_size", self.types),
        ];
        if let Some((key, size)) = sizes.into_iter().find(|(_, size)| !(1..=1 << 24).contains(size)) {
            return Err(format!("{key}: {size} is not between 1 and {}", 1 << 24));
        }
        if !self.hidden_size.is_multiple_of(self.heads) {
            return Err(format!(
                "hidden_size: {} is not a multiple of num_attention_heads = {}",
                self.hidden_size, self.heads
            ));
        }
        if !(self.epsilon.is_finite() && self.epsilon > 0.0) {
            return Err(format!("layer_norm_eps: {} is no positive number", self.epsilon));
        }
        Ok(())
    }
}
