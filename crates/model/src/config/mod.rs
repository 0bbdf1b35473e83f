//! The architecture: one decoder, and in what its families differ.
//!
//! | file | subject |
//! |---|---|
//! | `device.rs` | the device that a model runs on |
//! | `rotary.rs` | frequencies of the rotary embedding |

mod device;
pub(crate) mod rotary;

use std::fmt;

pub use device::Device;
pub use rotary::{RopeScaling, Rotary};

use crate::ModelError;
use crate::pictures::{TowerKind, VisionConfig};

/// A family of decoders, as `model_type` of `config.json` names it.
///
/// All are the same decoder: RMS norm before attention and before the MLP, grouped-query attention with
/// rotary positions, a gated MLP with SiLU. They differ in biases and in a norm of queries and keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Family {
    /// Qwen2 and Qwen2.5: biases on query, key and value.
    #[default]
    Qwen2,
    /// Qwen3: an RMS norm of each query and key head before rotation; no biases unless `attention_bias`.
    Qwen3,
    /// Llama 2 and 3: no biases unless `attention_bias` or `mlp_bias`.
    Llama,
    /// Qwen2-VL: the decoder of Qwen2 with a vision tower, and positions of pictures in two dimensions.
    Qwen2Vl,
    /// Qwen2.5-VL: the same with another tower.
    Qwen25Vl,
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Qwen2, Self::Qwen3, Self::Llama, Self::Qwen2Vl, Self::Qwen25Vl];

    /// Returns the name in `model_type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Llama => "llama",
            Self::Qwen2Vl => "qwen2_vl",
            Self::Qwen25Vl => "qwen2_5_vl",
        }
    }

    /// Returns the beginning of the names of `transformers`' classes.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Qwen2 => "Qwen2",
            Self::Qwen3 => "Qwen3",
            Self::Llama => "Llama",
            Self::Qwen2Vl => "Qwen2VL",
            Self::Qwen25Vl => "Qwen2_5_VL",
        }
    }

    /// Returns the kind of the vision tower, if the family has one.
    pub(crate) fn tower(self) -> Option<TowerKind> {
        match self {
            Self::Qwen2 | Self::Qwen3 | Self::Llama => None,
            Self::Qwen2Vl => Some(TowerKind::Qwen2Vl),
            Self::Qwen25Vl => Some(TowerKind::Qwen25Vl),
        }
    }

    /// Returns the family of a `model_type`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.name() == name)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// BOS, EOS and padding token ids. They do not affect computation, but a saved model must keep them
/// to stop correctly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Begins a text.
    pub bos: Option<u32>,
    /// Each ends a response; the first is the model's own.
    pub eos: Vec<u32>,
    /// Fills up.
    pub pad: Option<u32>,
}

/// Shape of a decoder. Names are those of Hugging Face's `config.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Family.
    pub model_type: Family,
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
    /// Width of one head. Heads together may be wider or narrower than the residual stream.
    pub head_dim: usize,
    /// Longest sequence the model was made for.
    pub max_position_embeddings: usize,
    /// Epsilon inside the root mean square norm.
    pub rms_norm_eps: f64,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Change of the rotary frequencies for contexts longer than those of pretraining.
    pub rope_scaling: RopeScaling,
    /// True if the output layer is the embedding transposed.
    pub tie_word_embeddings: bool,
    /// Biases on query, key, value and output of attention (Qwen3 and Llama; Qwen2 has its own rule).
    pub attention_bias: bool,
    /// Biases in the MLP (Llama).
    pub mlp_bias: bool,
    /// Standard deviation of the initial weights.
    pub initializer_range: f64,
    /// Tokens that begin, end and fill up.
    pub special_tokens: SpecialTokens,
    /// The vision tower, in a model that reads pictures.
    pub vision: Option<VisionConfig>,
}

/// A Qwen2 without scaled positions, with the values that all families share. Sizes are 0 and must
/// be set; [`ModelConfig::check`] rejects them otherwise.
impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            model_type: Family::Qwen2,
            vocab_size: 0,
            hidden_size: 0,
            intermediate_size: 0,
            num_hidden_layers: 0,
            num_attention_heads: 0,
            num_key_value_heads: 0,
            head_dim: 0,
            max_position_embeddings: 0,
            rms_norm_eps: 1e-6,
            rope_theta: 10_000.0,
            rope_scaling: RopeScaling::None,
            tie_word_embeddings: false,
            attention_bias: false,
            mlp_bias: false,
            initializer_range: 0.02,
            special_tokens: SpecialTokens::default(),
            vision: None,
        }
    }
}

impl ModelConfig {
    /// Returns the width of all query heads together.
    pub fn query_width(&self) -> usize {
        self.num_attention_heads * self.head_dim
    }

    /// Returns the width of all key (or value) heads together.
    pub fn key_value_width(&self) -> usize {
        self.num_key_value_heads * self.head_dim
    }

    /// Returns true if query, key and value projection have biases.
    pub fn qkv_bias(&self) -> bool {
        self.has_qkv_bias_alone() || self.attention_bias
    }

    /// Returns true if the output projection of attention has a bias.
    pub fn output_bias(&self) -> bool {
        !self.has_qkv_bias_alone() && self.attention_bias
    }

    /// Returns true in families with biases on query, key and value and no others.
    fn has_qkv_bias_alone(&self) -> bool {
        matches!(self.model_type, Family::Qwen2 | Family::Qwen2Vl | Family::Qwen25Vl)
    }

    /// Returns true if query and key heads are normed before they are turned.
    pub fn qk_norm(&self) -> bool {
        self.model_type == Family::Qwen3
    }

    /// Rejects a device that has no kernels for this architecture.
    pub(crate) fn check_device(&self, device: Device) -> Result<(), ModelError> {
        device.check()?;
        if device == Device::Cuda && self.vision.is_some() {
            return Err(ModelError::Setting {
                key: "policy.device".into(),
                reason: "models that read pictures run on the CPU only; set policy.device = \"cpu\"".into(),
            });
        }
        Ok(())
    }

    /// Rejects shapes that cannot be run, naming the key.
    ///
    /// # Errors
    /// Returns [`ModelError::Config`] with the key: a size that is 0 or too large, key heads that
    /// do not divide the query heads, an odd head width, norm or rotary settings out of range, or a
    /// bias that the family does not have.
    pub fn check(&self) -> Result<(), ModelError> {
        let fail = |key: &str, reason: String| Err(ModelError::Config { key: key.into(), reason });
        for (key, value) in [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.num_key_value_heads),
            ("head_dim", self.head_dim),
            ("max_position_embeddings", self.max_position_embeddings),
        ] {
            if value == 0 {
                return fail(key, "must be at least 1".into());
            }
            if value > 1 << 28 {
                return fail(key, format!("{value} is beyond any model"));
            }
        }
        // Matrices are laid out before any file of weights is opened: a slip in a digit must not end in the allocator.
        let per_layer =
            |width: usize| self.num_hidden_layers as u128 * self.hidden_size as u128 * width as u128;
        for (key, parameters) in [
            ("vocab_size", (self.vocab_size * self.hidden_size) as u128),
            ("intermediate_size", per_layer(self.intermediate_size)),
            ("num_attention_heads", per_layer(self.query_width())),
            ("num_key_value_heads", per_layer(self.key_value_width())),
        ] {
            if parameters > 1 << 42 {
                let reason = format!(
                    "with hidden_size = {} and num_hidden_layers = {} it makes {parameters} parameters, beyond any model",
                    self.hidden_size, self.num_hidden_layers
                );
                return fail(key, reason);
            }
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
        if !self.head_dim.is_multiple_of(2) {
            return fail(
                "head_dim",
                format!("the head width {} is odd; rotary embedding needs pairs", self.head_dim),
            );
        }
        if !(self.rope_theta > 1.0 && self.rope_theta.is_finite()) {
            return fail("rope_theta", format!("{} is not a number above 1", self.rope_theta));
        }
        if !(self.rms_norm_eps >= 0.0 && self.rms_norm_eps.is_finite()) {
            return fail("rms_norm_eps", format!("{} is not a number from 0 up", self.rms_norm_eps));
        }
        if self.attention_bias && self.has_qkv_bias_alone() {
            let reason = format!("{} has biases on query, key and value, and no others", self.model_type);
            return fail("attention_bias", reason);
        }
        if self.mlp_bias && self.model_type != Family::Llama {
            return fail("mlp_bias", format!("{} has no biases in the MLP; llama has", self.model_type));
        }
        match (&self.vision, self.model_type.tower()) {
            (Some(vision), Some(kind)) if vision.kind == kind => vision.check(self.head_dim)?,
            (None, None) => {}
            (None, Some(_)) => return fail("vision_config", "is missing".into()),
            (Some(_), None) => {
                return fail("vision_config", format!("{} has no vision tower", self.model_type));
            }
            (Some(vision), Some(_)) => {
                return fail(
                    "vision_config",
                    format!("{} has no tower of {:?}", self.model_type, vision.kind),
                );
            }
        }
        self.rope_scaling.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::decoder::tests::config;

    #[test]
    fn shapes_that_cannot_run_are_refused() {
        type Change = fn(&mut ModelConfig);

        let sound = config(4, 2, true);
        sound.check().unwrap();
        let changes: [(Change, &str); 12] = [
            (|config| config.vocab_size = 0, "vocab_size"),
            (|config| config.head_dim = 3, "odd"),
            (|config| config.hidden_size = 1 << 40, "hidden_size"),
            (|config| (config.vocab_size, config.hidden_size) = (151_936, 89_600_000), "vocab_size"),
            (|config| (config.hidden_size, config.head_dim) = (1 << 28, 1 << 28), "num_attention_heads"),
            (
                |config| (config.hidden_size, config.intermediate_size) = (1 << 28, 1 << 28),
                "intermediate_size",
            ),
            (|config| config.num_key_value_heads = 3, "num_attention_heads"),
            (|config| config.rope_theta = f64::NAN, "rope_theta"),
            (|config| config.rms_norm_eps = -1.0, "rms_norm_eps"),
            (|config| config.attention_bias = true, "attention_bias"),
            (|config| config.mlp_bias = true, "mlp_bias"),
            (|config| config.rope_scaling = RopeScaling::Linear { factor: 0.0 }, "factor"),
        ];
        for (change, expected) in changes {
            let mut config = sound.clone();
            change(&mut config);
            let error = config.check().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(ModelConfig::default().check().is_err());
    }

    #[test]
    fn families_are_known_by_their_names() {
        for family in Family::ALL {
            assert_eq!(Family::from_name(&family.to_string()), Some(family));
        }
        assert_eq!(Family::from_name("qwen3_moe"), None);
    }
}
