//! Settings of TurnRD.

use serde::{Deserialize, Serialize};

use turnwise_model::{AdamWConfig, ModelError};

/// Formula that computes credits from values and attention weights. Credits always sum to the
/// return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CreditRule {
    /// Clipped values, all shifted by the same amount so that they sum to the return (equation 5).
    Projection,
    /// Clipped values, shifted in proportion to the attention weights so that they sum to the
    /// return: `clip(V_t) - w_t (sum_s clip(V_s) - R)`.
    WeightedProjection,
    /// Attention weight times the return, `w_t R`.
    #[default]
    Attention,
}

/// Normalization of turn and goal vectors before the first layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum InputNorm {
    /// No norm.
    #[default]
    None,
    /// Divide each vector by its root mean square.
    Rms,
}

/// Target of the value head if the environment has a progress signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ValueTarget {
    /// Progress after the turn.
    #[default]
    Level,
    /// Change in progress during the turn. Progress before the first turn is 0.
    Change,
}

/// Settings of TurnRD. Defaults follow HAS, table 6 (`ALFWorld`). Exceptions are `credits`,
/// `epochs`, `older_per_new` and `min_improvement` (presets `has-attention` and
/// `has-attention-film`). The presets `has-turnrd` and `has-turnrd-film` set these four keys to the
/// paper's `"projection"`, 5, 1e6 and 0. For `WebShop` set `max_turns = 16` and
/// `value_weight = 0.5`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TurnRdConfig {
    /// Conditions the encoder's output on the goal (presets ending in `-film`); otherwise the goal
    /// is ignored.
    pub film: bool,
    /// Hidden width `H`.
    #[schemars(range(min = 1, max = 8192))]
    pub hidden: usize,
    /// Number of transformer layers.
    #[schemars(range(max = 64))]
    pub layers: usize,
    /// Number of attention heads; must divide `hidden`.
    #[schemars(range(min = 1, max = 256))]
    pub heads: usize,
    /// Width of the feed-forward layer as a multiple of `hidden`.
    #[schemars(range(min = 1, max = 64))]
    pub feed_forward: usize,
    /// Maximum number of turns in a trajectory, and number of learned positions.
    #[schemars(range(min = 1, max = 100000))]
    pub max_turns: usize,
    /// Dropout rate in training, rounded to a multiple of 1/65536.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    pub dropout: f64,
    /// Normalization of the input vectors.
    pub input_norm: InputNorm,
    /// Formula that computes credits from values and attention weights.
    pub credits: CreditRule,
    /// Bound `c` at which equation 5 clips values.
    #[schemars(range(max = 1e6), extend("exclusiveMinimum" = 0.0))]
    pub value_clip: f64,
    /// Weight of the rank hinge loss.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub rank_weight: f64,
    /// Margin of the rank hinge loss.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub rank_margin: f64,
    /// Weight of the KL divergence from the progress prior.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub progress_weight: f64,
    /// Weight of the value loss, `lambda_V`.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub value_weight: f64,
    /// Target of the value loss.
    pub value_target: ValueTarget,
    /// Learning rate of AdamW.
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0))]
    pub learning_rate: f64,
    /// Decoupled weight decay, applied to matrices. This is PyTorch's default; the paper states
    /// none.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub weight_decay: f64,
    /// Maximum global gradient norm; 0 disables clipping. The paper states no value.
    #[schemars(range(min = 0.0, max = 1e9))]
    pub clip_norm: f64,
    /// Maximum number of passes over the replay per round.
    #[schemars(range(min = 1, max = 1000))]
    pub epochs: usize,
    /// Number of older records per new record in a pass, drawn with probability proportional to
    /// their weight. All older records are read if there are fewer. With 1e6, as in the paper,
    /// every pass reads all records, so passes get slower as the run goes on.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub older_per_new: f64,
    /// A round ends early after a pass that lowers the loss by less than this fraction. With 0, all
    /// `epochs` run, as in the paper.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_improvement: f64,
    /// Trajectories per minibatch.
    #[schemars(range(min = 1, max = 65536))]
    pub batch: usize,
    /// Half-life, in rounds, of the weight of a replay record.
    #[schemars(range(max = 1e9), extend("exclusiveMinimum" = 0.0))]
    pub half_life: f64,
    /// Number of parts into which a minibatch is split to run in parallel. Results depend on this
    /// value, but not on the number of CPU cores.
    #[schemars(range(min = 1, max = 256))]
    pub num_workers: usize,
}

impl Default for TurnRdConfig {
    fn default() -> Self {
        Self {
            film: true,
            hidden: 128,
            layers: 2,
            heads: 4,
            feed_forward: 4,
            max_turns: 50,
            dropout: 0.1,
            input_norm: InputNorm::None,
            credits: CreditRule::Attention,
            value_clip: 2.0,
            rank_weight: 0.1,
            rank_margin: 0.1,
            progress_weight: 0.01,
            value_weight: 1.0,
            value_target: ValueTarget::Level,
            learning_rate: 5e-4,
            weight_decay: 0.01,
            clip_norm: 1.0,
            epochs: 2,
            older_per_new: 0.5,
            min_improvement: 0.02,
            batch: 16,
            half_life: 4.0,
            num_workers: 2,
        }
    }
}

impl TurnRdConfig {
    /// Rejects invalid settings.
    ///
    /// # Errors
    /// The error names the key, its value and valid values.
    pub fn check(&self) -> Result<(), ModelError> {
        turnwise_settings::check(self).map_err(ModelError::Settings)?;
        if !self.hidden.is_multiple_of(self.heads) {
            let reason = format!("is {}, which does not divide hidden = {}", self.heads, self.hidden);
            return Err(setting("heads", reason));
        }
        Ok(())
    }

    /// Returns the optimizer settings, with PyTorch's default betas and epsilon.
    pub(super) fn optimizer(&self) -> AdamWConfig {
        AdamWConfig {
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: self.weight_decay,
            clip_norm: self.clip_norm,
        }
    }
}

pub(super) fn setting(key: &str, reason: impl Into<String>) -> ModelError {
    ModelError::Setting { key: format!("turnrd.{key}"), reason: reason.into() }
}
