//! Vision settings of a model, and the tokens around an image.

use super::{PictureTokens, Pictures};
use crate::ModelError;

/// Settings of `preprocessor_config.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageSettings {
    /// Minimum pixels after resizing.
    pub min_pixels: usize,
    /// Maximum pixels after resizing.
    pub max_pixels: usize,
    /// Mean of each channel, from 0 to 1.
    pub mean: [f64; 3],
    /// Standard deviation of each channel.
    pub std: [f64; 3],
}

/// Returns the defaults of `Qwen2VLImageProcessor`, with CLIP's means and deviations.
impl Default for ImageSettings {
    fn default() -> Self {
        Self {
            min_pixels: 56 * 56,
            max_pixels: 28 * 28 * 1280,
            mean: [0.481_454_66, 0.457_827_5, 0.408_210_73],
            std: [0.268_629_54, 0.261_302_58, 0.275_777_11],
        }
    }
}

/// Token ids that mark images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisionTokens {
    /// Token before a picture.
    pub start: u32,
    /// Token after a picture.
    pub end: u32,
    /// Placeholder for one merged patch.
    pub image: u32,
    /// Video placeholder, only saved with the model; videos are not supported.
    pub video: u32,
}

/// Architecture of the vision tower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TowerKind {
    /// Qwen2-VL: layer norms, plain MLP with QuickGELU, attention to the whole image.
    Qwen2Vl,
    /// Qwen2.5-VL: RMS norms, gated MLP with SiLU, attention mostly within windows.
    #[default]
    Qwen25Vl,
}

/// A vision tower's shape and the model's images. Fields are named as in Qwen2.5-VL's
/// `vision_config`.
#[derive(Clone, Debug, PartialEq)]
pub struct VisionConfig {
    /// Architecture.
    pub kind: TowerKind,
    /// Number of blocks.
    pub depth: usize,
    /// Width of the residual stream (Qwen2-VL: `embed_dim`).
    pub hidden_size: usize,
    /// Width of the MLP (Qwen2-VL: `mlp_ratio` times `embed_dim`).
    pub intermediate_size: usize,
    /// Attention heads.
    pub num_heads: usize,
    /// Pixels per side of a patch.
    pub patch_size: usize,
    /// Frames per patch; a still image is repeated.
    pub temporal_patch_size: usize,
    /// Patches per side of a merged patch, which is one token.
    pub spatial_merge_size: usize,
    /// Pixels per side of an attention window; unused in Qwen2-VL.
    pub window_size: usize,
    /// Ascending indices of blocks that attend to the whole image instead of windows; unused in
    /// Qwen2-VL.
    pub fullatt_block_indexes: Vec<usize>,
    /// Standard deviation of initial weights, only saved with the model.
    pub initializer_range: f64,
    /// Rotary pairs per decoder head for time, row and column (M-RoPE).
    pub mrope_section: [usize; 3],
    /// Tokens around a picture.
    pub tokens: VisionTokens,
    /// Image processor settings.
    pub image: ImageSettings,
    /// Images, shared by clones of this config.
    pub pictures: Pictures,
}

impl VisionConfig {
    /// Epsilon of the tower's norms; `transformers` does not read it from the config.
    pub(crate) const EPSILON: f64 = 1e-6;

    pub(crate) fn head_dim(&self) -> usize {
        self.hidden_size / self.num_heads
    }

    /// Returns the values per patch: `[3, temporal_patch_size, patch_size, patch_size]`.
    pub(crate) fn patch_len(&self) -> usize {
        3 * self.temporal_patch_size * self.patch_size * self.patch_size
    }

    pub(crate) fn merged(&self) -> usize {
        self.spatial_merge_size * self.spatial_merge_size
    }

    /// Returns the pixels per side of a merged patch, a divisor of every resized image's height and
    /// width.
    pub fn factor(&self) -> usize {
        self.patch_size * self.spatial_merge_size
    }

    pub(crate) fn attends_whole(&self, block: usize) -> bool {
        self.kind == TowerKind::Qwen2Vl || self.fullatt_block_indexes.contains(&block)
    }

    pub(crate) fn up_width(&self) -> usize {
        match self.kind {
            TowerKind::Qwen2Vl => self.intermediate_size,
            TowerKind::Qwen25Vl => 2 * self.intermediate_size,
        }
    }

    pub(crate) fn window(&self) -> usize {
        match self.kind {
            TowerKind::Qwen2Vl => 1,
            TowerKind::Qwen25Vl => self.window_size / self.factor(),
        }
    }

    /// Replaces each image token in a prompt, in order, with the tokens of an image.
    ///
    /// # Errors
    /// Returns [`ModelError::Setting`] if the number of image tokens differs from that of images.
    /// An image token counts even if it comes from prompt text that spells out its name.
    pub fn insert(&self, prompt: &[u32], pictures: &[PictureTokens]) -> Result<Vec<u32>, ModelError> {
        let found = prompt.iter().filter(|&&token| token == self.tokens.image).count();
        if found != pictures.len() {
            let reason = format!("has {found} image tokens for {} pictures", pictures.len());
            return Err(ModelError::Setting { key: "prompt".into(), reason });
        }
        let mut pictures = pictures.iter();
        let mut tokens = Vec::with_capacity(prompt.len());
        for &token in prompt {
            match (token == self.tokens.image).then(|| pictures.next()).flatten() {
                Some(picture) => tokens.extend(picture.ids()),
                None => tokens.push(token),
            }
        }
        Ok(tokens)
    }

    /// Rejects unsupported shapes, given the decoder's `head_dim`.
    ///
    /// # Errors
    /// Returns [`ModelError::Config`] with the name of the unsupported key.
    pub fn check(&self, head_dim: usize) -> Result<(), ModelError> {
        let fail = |key: &str, reason: String| {
            Err(ModelError::Config { key: format!("vision_config.{key}"), reason })
        };
        for (key, value, most) in [
            ("depth", self.depth, 1 << 10),
            ("hidden_size", self.hidden_size, 1 << 16),
            ("intermediate_size", self.intermediate_size, 1 << 18),
            ("num_heads", self.num_heads, 1 << 10),
            ("patch_size", self.patch_size, 1 << 8),
            ("temporal_patch_size", self.temporal_patch_size, 1 << 4),
            ("spatial_merge_size", self.spatial_merge_size, 1 << 4),
            ("window_size", self.window_size, 1 << 16),
        ] {
            if !(1..=most).contains(&value) {
                return fail(key, format!("{value} is not between 1 and {most}"));
            }
        }
        if !self.hidden_size.is_multiple_of(self.num_heads) || !self.head_dim().is_multiple_of(4) {
            let reason = format!(
                "{} is not num_heads = {} times a multiple of 4, which rows and columns need",
                self.hidden_size, self.num_heads
            );
            return fail("hidden_size", reason);
        }
        if self.kind == TowerKind::Qwen2Vl && !self.intermediate_size.is_multiple_of(self.hidden_size) {
            let (inner, hidden) = (self.intermediate_size, self.hidden_size);
            return fail("mlp_ratio", format!("{inner} is not a multiple of embed_dim = {hidden}"));
        }
        if self.window() == 0 {
            let reason = format!("{} is less than a merged patch of {}", self.window_size, self.factor());
            return fail("window_size", reason);
        }
        let sections: usize = self.mrope_section.iter().sum();
        if sections != head_dim / 2 {
            return Err(ModelError::Config {
                key: "rope_scaling.mrope_section".into(),
                reason: format!(
                    "{:?} adds up to {sections}; it must be half the head width, {}",
                    self.mrope_section,
                    head_dim / 2
                ),
            });
        }
        let ImageSettings { min_pixels, max_pixels, mean, std } = &self.image;
        let sizes = *min_pixels >= 1 && min_pixels <= max_pixels && *max_pixels <= 1 << 26;
        if !sizes || max_pixels / self.factor() < self.factor() {
            let reason = format!(
                "a picture of {factor} x {factor} pixels does not fit min_pixels = {min_pixels}, max_pixels = {max_pixels}",
                factor = self.factor()
            );
            return fail("image.max_pixels", reason);
        }
        if mean.iter().any(|mean| !mean.is_finite()) || !std.iter().all(|std| std.is_finite() && *std > 0.0) {
            return fail(
                "image.std",
                format!("means {mean:?} and deviations {std:?} are not usable numbers"),
            );
        }
        Ok(())
    }
}
