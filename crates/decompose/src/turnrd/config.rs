//! Settings of TurnRD.

use serde::{Deserialize, Serialize};

use turnwise_model::{AdamWConfig, ModelError};

/// Formula of the credits, which always sum to the return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CreditRule {
    /// Clipped values, all shifted by the same amount (equation 5).
    Projection,
    /// Clipped values, shifted in proportion to the attention weights:
    /// `clip(V_t) - w_t (sum_s clip(V_s) - R)`.
    WeightedProjection,
    /// Attention weight times the return, `w_t R`.
    #[default]
    Attention,
}

/// Normalization of turn and goal vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum InputNorm {
    /// No normalization.
    #[default]
    None,
    /// Divides each vector by its root mean square.
    Rms,
}

/// Target of the value head for turns with a progress signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ValueTarget {
    /// Progress after the turn.
    #[default]
    Level,
    /// Change in progress during the turn, from 0 before the first.
    Change,
}

/// Settings of TurnRD. Defaults follow HAS, table 6 (`ALFWorld`), except `credits`, `epochs`,
/// `older_per_new` and `min_improvement`, which the presets `has-turnrd` and `has-turnrd-film` set
/// to the paper's `"projection"`, 5, 1e6 and 0. For `WebShop` set `max_turns = 16` and
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
    /// Feed-forward width as a multiple of `hidden`.
    #[schemars(range(min = 1, max = 64))]
    pub feed_forward: usize,
    /// Maximum number of turns in a trajectory, which is also the number of learned positions.
    #[schemars(range(min = 1, max = 100000))]
    pub max_turns: usize,
    /// Dropout rate in training, rounded to a multiple of 1/65536.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    pub dropout: f64,
    /// Normalization of input vectors.
    pub input_norm: InputNorm,
    /// Formula of the credits.
    pub credits: CreditRule,
    /// Clipping bound `c` of values in equation 5.
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
    /// Value loss weight, `lambda_V`.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub value_weight: f64,
    /// Value loss target.
    pub value_target: ValueTarget,
    /// AdamW learning rate.
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0))]
    pub learning_rate: f64,
    /// Decoupled weight decay of matrices. The default is PyTorch's, because the paper states no
    /// value.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub weight_decay: f64,
    /// Maximum global gradient norm; 0 disables clipping. The paper states no maximum.
    #[schemars(range(min = 0.0, max = 1e9))]
    pub clip_norm: f64,
    /// Maximum number of passes over the replay per round.
    #[schemars(range(min = 1, max = 1000))]
    pub epochs: usize,
    /// Number of older records per new record in a pass, drawn in proportion to their weights; if
    /// there are fewer, all are read. With the paper's 1e6, every pass reads all records and gets
    /// slower during the run.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub older_per_new: f64,
    /// A round ends after a pass that lowers the loss by less than this fraction. With the paper's
    /// 0, all `epochs` run.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_improvement: f64,
    /// Number of trajectories per minibatch.
    #[schemars(range(min = 1, max = 65536))]
    pub batch: usize,
    /// Half-life of a replay record's weight, in rounds.
    #[schemars(range(max = 1e9), extend("exclusiveMinimum" = 0.0))]
    pub half_life: f64,
    /// Number of parts of a minibatch that are computed in parallel. Results depend on this
    /// setting, but not on the number of cores.
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
    /// The error names the key, its value and the valid values.
    pub fn check(&self) -> Result<(), ModelError> {
        turnwise_settings::check(self).map_err(ModelError::Settings)?;
        if !self.hidden.is_multiple_of(self.heads) {
            let reason = format!("is {}, which does not divide hidden = {}", self.heads, self.hidden);
            return Err(setting("heads", reason));
        }
        Ok(())
    }

    /// Returns AdamW's settings, with PyTorch's default betas and epsilon.
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
