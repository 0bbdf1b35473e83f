//! The `[policy.scratch]` table.

use serde::{Deserialize, Serialize};
use turnwise_model::vision::{ImageSettings, Pictures, TowerKind, VisionConfig, VisionTokens};
use turnwise_model::{Family, ModelConfig};

/// Shape of a model from scratch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ScratchConfig {
    /// Width of the residual stream.
    #[schemars(range(min = 2, max = 16384))]
    pub hidden_size: usize,
    /// Number of decoder layers.
    #[schemars(range(min = 1, max = 256))]
    pub layers: usize,
    /// Number of query heads.
    #[schemars(range(min = 1, max = 256))]
    pub heads: usize,
    /// Number of key and value heads.
    #[schemars(range(min = 1, max = 256))]
    pub key_value_heads: usize,
    /// Width inside the gated MLP.
    #[schemars(range(min = 1, max = 131072))]
    pub intermediate_size: usize,
    /// Base of the rotary frequencies.
    #[schemars(range(min = 1.0, max = 1e9))]
    pub rope_theta: f64,
    /// Standard deviation of the initial weights.
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0))]
    pub initializer_range: f64,
    /// Maximum vocabulary entries in addition to the 256 bytes.
    #[schemars(range(max = 1000000))]
    pub max_pieces: usize,
    /// Vision tower with Qwen2.5-VL's architecture, for pictures in prompts. Absent: text only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vision: Option<ScratchVisionConfig>,
}

/// A small vision tower with full attention in all blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ScratchVisionConfig {
    /// Width of the residual stream.
    #[schemars(range(min = 4, max = 16384))]
    pub hidden_size: usize,
    /// Number of blocks.
    #[schemars(range(min = 1, max = 256))]
    pub layers: usize,
    /// Number of attention heads.
    #[schemars(range(min = 1, max = 256))]
    pub heads: usize,
    /// Width inside the gated MLP.
    #[schemars(range(min = 1, max = 131072))]
    pub intermediate_size: usize,
    /// Side of a patch in pixels.
    #[schemars(range(min = 1, max = 256))]
    pub patch_size: usize,
    /// Side, in patches, of the square merged into one decoder token.
    #[schemars(range(min = 1, max = 16))]
    pub merge_size: usize,
    /// Maximum pixels of a picture; larger ones are scaled down. Sides are rounded to multiples of
    /// `patch_size * merge_size`.
    #[schemars(range(min = 1, max = 16777216))]
    pub max_pixels: usize,
}

impl Default for ScratchVisionConfig {
    fn default() -> Self {
        Self {
            hidden_size: 64,
            layers: 2,
            heads: 4,
            intermediate_size: 128,
            patch_size: 16,
            merge_size: 1,
            max_pixels: 256 * 256,
        }
    }
}

impl Default for ScratchConfig {
    fn default() -> Self {
        Self {
            hidden_size: 128,
            layers: 4,
            heads: 4,
            key_value_heads: 2,
            intermediate_size: 384,
            rope_theta: 10_000.0,
            initializer_range: 0.02,
            max_pieces: 1024,
            vision: None,
        }
    }
}

impl ScratchConfig {
    /// Returns the model config without a vision tower.
    pub fn model_config(&self, vocab_size: usize, max_model_len: usize) -> ModelConfig {
        ModelConfig {
            vocab_size,
            hidden_size: self.hidden_size,
            intermediate_size: self.intermediate_size,
            num_hidden_layers: self.layers,
            num_attention_heads: self.heads,
            num_key_value_heads: self.key_value_heads,
            head_dim: self.hidden_size / self.heads.max(1),
            max_position_embeddings: max_model_len,
            rope_theta: self.rope_theta,
            tie_word_embeddings: true,
            initializer_range: self.initializer_range,
            ..ModelConfig::default()
        }
    }

    pub(crate) fn with_tower(&self, model: ModelConfig, tokens: VisionTokens) -> ModelConfig {
        let Some(vision) = &self.vision else { return model };
        let tower = vision.tower(model.head_dim, self.initializer_range, tokens);
        ModelConfig { model_type: Family::Qwen25Vl, vision: Some(tower), ..model }
    }
}

impl ScratchVisionConfig {
    fn tower(&self, head_dim: usize, initializer_range: f64, tokens: VisionTokens) -> VisionConfig {
        // A quarter of a head rotates by time, as in Qwen2.5-VL, the rest by row and column.
        let (half, time) = (head_dim / 2, head_dim / 8);
        let row = (half - time) / 2;
        VisionConfig {
            kind: TowerKind::Qwen25Vl,
            depth: self.layers,
            hidden_size: self.hidden_size,
            intermediate_size: self.intermediate_size,
            num_heads: self.heads,
            patch_size: self.patch_size,
            temporal_patch_size: 1,
            spatial_merge_size: self.merge_size,
            window_size: self.patch_size * self.merge_size,
            fullatt_block_indexes: (0..self.layers).collect(),
            initializer_range,
            mrope_section: [time, row, half - time - row],
            tokens,
            image: ImageSettings { min_pixels: 1, max_pixels: self.max_pixels, ..ImageSettings::default() },
            pictures: Pictures::default(),
        }
    }

    pub(super) fn weights(&self, width: usize) -> usize {
        let Self { hidden_size: hidden, patch_size, merge_size, .. } = *self;
        let merged = hidden * merge_size * merge_size;
        let block = 4 * hidden * hidden + 3 * hidden * self.intermediate_size;
        3 * patch_size * patch_size * hidden + self.layers * block + merged * (merged + width)
    }
}
