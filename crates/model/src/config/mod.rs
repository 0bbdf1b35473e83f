//! Architecture of the decoder and its families.

mod device;
pub(crate) mod rotary;

use std::fmt;

pub use device::Device;
pub use rotary::{RopeScaling, Rotary};

use crate::ModelError;
use crate::pictures::{TowerKind, VisionConfig};

/// A family of decoders, named by `model_type` in `config.json`.
///
/// All families have RMS norm before attention and MLP, grouped-query attention with rotary
/// positions, and a gated SiLU MLP. Families differ in biases and in whether queries and keys are
/// normalized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Family {
    /// Qwen2 and Qwen2.5: biases on query, key and value.
    #[default]
    Qwen2,
    /// Qwen3: RMS norm on query and key heads before rotation; biases only with `attention_bias`.
    Qwen3,
    /// Llama 2 and 3: biases only with `attention_bias` or `mlp_bias`.
    Llama,
    /// Qwen2-VL: Qwen2 with a vision tower and multimodal rotary positions.
    Qwen2Vl,
    /// Qwen2.5-VL: like Qwen2-VL, with a different vision tower.
    Qwen25Vl,
}

impl Family {
    /// All families.
    pub const ALL: [Self; 5] = [Self::Qwen2, Self::Qwen3, Self::Llama, Self::Qwen2Vl, Self::Qwen25Vl];

    /// Returns the `model_type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Llama => "llama",
            Self::Qwen2Vl => "qwen2_vl",
            Self::Qwen25Vl => "qwen2_5_vl",
        }
    }

    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Qwen2 => "Qwen2",
            Self::Qwen3 => "Qwen3",
            Self::Llama => "Llama",
            Self::Qwen2Vl => "Qwen2VL",
            Self::Qwen25Vl => "Qwen2_5_VL",
        }
    }

    pub(crate) fn tower(self) -> Option<TowerKind> {
        match self {
            Self::Qwen2 | Self::Qwen3 | Self::Llama => None,
            Self::Qwen2Vl => Some(TowerKind::Qwen2Vl),
            Self::Qwen25Vl => Some(TowerKind::Qwen25Vl),
        }
    }

    /// Finds a family by `model_type`.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.name() == name)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// BOS, EOS and padding token ids, saved with a model so that programs that load it stop generating
/// at EOS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// BOS token id.
    pub bos: Option<u32>,
    /// EOS token ids. A file format that allows only one EOS token, such as GGUF, gets the first.
    pub eos: Vec<u32>,
    /// Padding token.
    pub pad: Option<u32>,
}

/// A decoder's shape, with the keys of Hugging Face's `config.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Model family.
    pub model_type: Family,
    /// Number of embedding rows; padding may make it larger than the tokenizer's vocabulary.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the gated MLP.
    pub intermediate_size: usize,
    /// Decoder layers.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Number of key/value heads, each shared by an equal number of consecutive query heads.
    pub num_key_value_heads: usize,
    /// Width of one head. All heads together need not be as wide as `hidden_size`.
    pub head_dim: usize,
    /// Maximum sequence length.
    pub max_position_embeddings: usize,
    /// Epsilon of the RMS norm, inside the square root.
    pub rms_norm_eps: f64,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Scaling of the rotary frequencies for long contexts.
    pub rope_scaling: RopeScaling,
    /// True if the output layer shares the embedding.
    pub tie_word_embeddings: bool,
    /// True if query, key, value and output have biases (Qwen3 and Llama). Must be false for Qwen2,
    /// which always has biases on query, key and value.
    pub attention_bias: bool,
    /// True if the MLP has biases (Llama).
    pub mlp_bias: bool,
    /// Standard deviation of the initial weights.
    pub initializer_range: f64,
    /// BOS, EOS and padding token ids.
    pub special_tokens: SpecialTokens,
    /// Vision tower, if any.
    pub vision: Option<VisionConfig>,
}

/// Returns a Qwen2 config with unscaled rotary positions. All sizes are 0 and must be set.
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
    /// Returns the total width of query heads.
    pub fn query_width(&self) -> usize {
        self.num_attention_heads * self.head_dim
    }

    /// Returns the total width of key heads, which equals that of value heads.
    pub(crate) fn key_value_width(&self) -> usize {
        self.num_key_value_heads * self.head_dim
    }

    /// Returns true if query, key and value have biases.
    pub(crate) fn qkv_bias(&self) -> bool {
        self.has_qkv_bias_alone() || self.attention_bias
    }

    /// Returns true if attention's output has a bias.
    pub(crate) fn output_bias(&self) -> bool {
        !self.has_qkv_bias_alone() && self.attention_bias
    }

    fn has_qkv_bias_alone(&self) -> bool {
        matches!(self.model_type, Family::Qwen2 | Family::Qwen2Vl | Family::Qwen25Vl)
    }

    /// Returns true if query and key heads get an RMS norm.
    pub(crate) fn qk_norm(&self) -> bool {
        self.model_type == Family::Qwen3
    }

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

    /// Rejects unsupported shapes.
    ///
    /// # Errors
    /// Returns [`ModelError::Config`] with the name of the rejected key if:
    /// - a size is out of limits, or the head width is odd;
    /// - the number of query heads is not a multiple of the number of key heads;
    /// - a norm or rotary setting is out of range;
    /// - biases or vision settings do not fit the family.
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
            let most: usize = if key == "num_hidden_layers" { 1 << 14 } else { 1 << 28 };
            if value > most {
                return fail(key, format!("{value} is beyond any model"));
            }
        }
        // Checked before weights are read, so that a typo cannot exhaust memory.
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
        let changes: [(Change, &str); 13] = [
            (|config| config.vocab_size = 0, "vocab_size"),
            (|config| config.head_dim = 3, "odd"),
            (|config| config.hidden_size = 1 << 40, "hidden_size"),
            (|config| (config.hidden_size, config.num_hidden_layers) = (8, 20_000), "num_hidden_layers"),
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
