//! Settings of the objective.

use serde::{Deserialize, Serialize};
use turnwise_core::{MethodTable, ObjectiveError, RequiredPasses};

use crate::{AdaptiveKl, Aggregation, KlEstimator, KlPlace, NormalizationConfig, SelectiveConfig};

/// Which tokens share an importance ratio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RatioKind {
    /// One ratio per token: `exp(lp - old)` (PPO, GRPO).
    #[default]
    Token,
    /// One ratio per turn: `exp(mean over the turn's tokens of (lp - old))` (SORL).
    Turn,
    /// One ratio per sequence, over all response tokens (GSPO). The gradient averages the
    /// advantages over the sequence, so differences between its turns are lost.
    Sequence,
    /// Same ratio and clipping as `sequence`, but each token has its own gradient, which keeps the
    /// advantage of its turn (GSPO-token, section 4.3 of GSPO's paper; verl's `gspo`).
    SequenceToken,
}

/// Clip range of the ratio around 1: `{ low = 0.2, high = 0.2 }` or `[0.2, 0.2]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = or_pair)]
pub struct Clip {
    /// The lower bound is `1 - low`; 0.2 without a preset.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub low: f64,
    /// The upper bound is `1 + high`; 0.2 without a preset. A large value turns the upper bound
    /// off.
    #[schemars(range(min = 0.0, max = 1e12))]
    pub high: f64,
}

fn or_pair(schema: &mut schemars::Schema) {
    let table = schema.clone();
    let low = table.get("properties").map(|known| known["low"].clone());
    let high = table.get("properties").map(|known| known["high"].clone());
    *schema = schemars::json_schema!({
        "anyOf": [table, { "type": "array", "prefixItems": [low, high], "minItems": 2, "maxItems": 2 }]
    });
}

fn method_tables(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "kind": { "type": "string", "description": "Name of a registered term; its settings stand beside it." }
            },
            "required": ["kind"],
            "additionalProperties": true
        }
    })
}

impl Default for Clip {
    fn default() -> Self {
        Self { low: 0.2, high: 0.2 }
    }
}

/// KL penalty to the reference policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KlConfig {
    /// Coefficient beta; 0 turns the penalty off.
    #[schemars(range(min = 0.0, max = 1000.0))]
    pub coef: f64,
    /// Estimator of the KL.
    pub estimator: KlEstimator,
    /// Where to apply the penalty.
    #[serde(rename = "apply_to")]
    pub place: KlPlace,
    /// Adapts the coefficient to a target KL. Absent: constant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<AdaptiveKl>,
}

impl Default for KlConfig {
    fn default() -> Self {
        Self { coef: 0.0, estimator: KlEstimator::K3, place: KlPlace::Loss, adaptive: None }
    }
}

/// Settings of the policy objective.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ObjectiveConfig {
    /// Which tokens share an importance ratio.
    pub ratio: RatioKind,
    /// The clip range.
    pub clip: Clip,
    /// Dual clip: bounds the loss for negative advantages (usually 3). Absent: off.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1000.0), extend("exclusiveMinimum" = 1.0))]
    pub dual_clip: Option<f64>,
    /// How the loss averages over tokens.
    pub loss_agg_mode: Aggregation,
    /// The KL penalty to the reference policy.
    pub kl: KlConfig,
    /// Coefficient of the entropy bonus; 0 turns it off.
    #[schemars(range(min = -10.0, max = 10.0))]
    pub entropy_coef: f64,
    /// STAPO's selective term on outlier turns; needs `credit.outliers`. Absent: off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selective: Option<SelectiveConfig>,
    /// SORL's clipping-triggered normalization of the gradient. Absent: off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normalization: Option<NormalizationConfig>,
    /// Additional loss terms `{ kind = "...", ... }`; `kind` is the registered name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "method_tables")]
    pub terms: Vec<MethodTable>,
}

impl ObjectiveConfig {
    /// Returns whether the loss has a KL penalty.
    pub fn needs_reference(&self) -> bool {
        self.kl.coef != 0.0 && self.kl.place == KlPlace::Loss
    }

    /// Returns whether the loss needs [`crate::ObjectiveSequence::ref_logprobs`].
    pub fn needs_reference_logprobs(&self) -> bool {
        self.needs_reference() && self.kl.estimator != KlEstimator::Full
    }

    /// Returns whether the loss needs full-vocabulary KLs from the learner.
    pub fn needs_reference_kls(&self) -> bool {
        self.needs_reference() && self.kl.estimator == KlEstimator::Full
    }

    /// Returns the model passes that the loss needs without its additional terms.
    pub(crate) fn passes(&self) -> RequiredPasses {
        RequiredPasses {
            reward_reference_logprobs: self.kl_in_reward(),
            reference_logprobs: self.needs_reference_logprobs(),
            reference_kls: self.needs_reference_kls(),
            entropies: self.entropy_coef != 0.0,
            ..RequiredPasses::default()
        }
    }

    /// Returns whether the KL penalty is subtracted from rewards.
    pub fn kl_in_reward(&self) -> bool {
        self.kl.coef != 0.0 && self.kl.place == KlPlace::Reward
    }

    /// Rejects invalid settings.
    ///
    /// # Errors
    /// Returns the first invalid key with its value and the valid range.
    pub fn check(&self) -> Result<(), ObjectiveError> {
        let refuse = |text: String| Err(ObjectiveError::Setting(text));
        turnwise_settings::check(self).map_err(|error| ObjectiveError::Setting(error.to_string()))?;
        if self.kl_in_reward() && self.kl.estimator == KlEstimator::Full {
            return refuse(
                "kl.estimator is \"full\" with kl.apply_to = \"reward\"; rewards take it from the sampled \
                 tokens: use k1, k2 or k3, or apply_to = \"loss\""
                    .into(),
            );
        }
        if let Some(adaptive) = &self.kl.adaptive {
            adaptive.check()?;
            if self.kl.coef == 0.0 {
                return refuse("kl.adaptive needs a coefficient to start from; set kl.coef above 0".into());
            }
            let (coef, AdaptiveKl { min, max, .. }) = (self.kl.coef, adaptive);
            if !(*min..=*max).contains(&coef) {
                return refuse(format!(
                    "kl.coef is {coef}, and kl.adaptive keeps it between {min} and {max}; start inside of them"
                ));
            }
        }
        Ok(())
    }
}
