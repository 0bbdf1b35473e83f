//! The KL to the reference policy, estimated from log-probs of sampled tokens.

use serde::{Deserialize, Serialize};
use turnwise_core::ObjectiveError;

/// Bound of log-ratios in k3.
const LOG_RATIO_LIMIT: f64 = 20.0;

/// Estimator of `KL[pi || ref]` at a token, with `d = ln pi - ln ref` (J. Schulman, "Approximating KL Divergence",
/// 2020).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KlEstimator {
    /// `exp(-d) - 1 + d`: unbiased and never negative.
    #[default]
    K3,
    /// `d`: unbiased, but may be negative. Use it in the reward: in the loss, its expected gradient
    /// under the sampling policy is 0 for any reference.
    K1,
    /// `d^2 / 2`: biased, but never negative.
    K2,
    /// The exact KL over the full vocabulary, computed by the learner; only for the loss.
    Full,
}

/// Where the penalty is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KlPlace {
    /// Added to the loss, with a gradient.
    #[default]
    Loss,
    /// Subtracted from the reward before credit assignment, without a gradient.
    Reward,
}

/// Returns the KL estimate and its derivative with respect to the policy's log-prob. For
/// [`KlEstimator::Full`], returns the estimate and derivative of k3.
///
/// In k3, `ln pi - ln ref` is clamped to [-20, 20]; outside this range, the derivative is 0.
pub fn kl_estimate(estimator: KlEstimator, logprob: f64, ref_logprob: f64) -> (f64, f64) {
    let d = logprob - ref_logprob;
    match estimator {
        KlEstimator::K1 => (d, 1.0),
        KlEstimator::K2 => (0.5 * d * d, d),
        KlEstimator::K3 | KlEstimator::Full => {
            let clamped = d.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT);
            let slope = if d.abs() <= LOG_RATIO_LIMIT { 1.0 - (-clamped).exp() } else { 0.0 };
            // exp_m1 keeps the digits that 1 + d loses for small d.
            ((-clamped).exp_m1() + clamped, slope)
        }
    }
}

/// Returns the KL penalty of a turn's reward (`objective.kl.apply_to = "reward"`): `coef` times the
/// sum over the turn's tokens of the estimated KL from the sampling policy to the reference.
pub fn reward_kl(estimator: KlEstimator, coef: f64, old_logprobs: &[f32], ref_logprobs: &[f32]) -> f64 {
    coef * old_logprobs
        .iter()
        .zip(ref_logprobs)
        .map(|(&old, &reference)| kl_estimate(estimator, f64::from(old), f64::from(reference)).0)
        .sum::<f64>()
}

/// Adapts the KL coefficient to a target. After a step, the coefficient is multiplied by `raise` if
/// the KL was above `raise` times the target, and by `lower` if it was below `lower` times the
/// target (Ziegler et al. 2019; HAS, tables 5 and 6, gives only the target).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdaptiveKl {
    /// Target KL, in nats per token.
    #[schemars(range(max = 1000.0), extend("exclusiveMinimum" = 0.0))]
    pub target: f64,
    /// Factor that raises the coefficient. Multiplied by the target, it is also the KL above which
    /// the coefficient is raised.
    #[schemars(range(min = 1.0, max = 1000.0))]
    pub raise: f64,
    /// Factor that lowers the coefficient. Multiplied by the target, it is also the KL below which
    /// the coefficient is lowered.
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0))]
    pub lower: f64,
    /// Smallest coefficient.
    #[schemars(range(max = 1000.0), extend("exclusiveMinimum" = 0.0))]
    pub min: f64,
    /// Largest coefficient.
    #[schemars(range(max = 1000.0), extend("exclusiveMinimum" = 0.0))]
    pub max: f64,
}

impl Default for AdaptiveKl {
    fn default() -> Self {
        Self { target: 0.04, raise: 1.5, lower: 0.5, min: 1e-4, max: 1.0 }
    }
}

impl AdaptiveKl {
    /// Returns the next coefficient for a measured `kl`; if `kl` is NaN, the coefficient does not
    /// change.
    pub fn next(&self, coef: f64, kl: f64) -> f64 {
        let factor = if kl > self.raise * self.target {
            self.raise
        } else if kl < self.lower * self.target {
            self.lower
        } else {
            1.0
        };
        (coef * factor).max(self.min).min(self.max)
    }

    /// Rejects invalid settings.
    ///
    /// # Errors
    /// Returns the first invalid key with its value and the valid range.
    pub fn check(&self) -> Result<(), ObjectiveError> {
        let refuse = |text: String| Err(ObjectiveError::Setting(text));
        if let Err(error) = turnwise_settings::check(self) {
            return refuse(format!("kl.adaptive: {error}"));
        }
        if self.min > self.max {
            return refuse(format!("kl.adaptive has min {} above max {}; lower it", self.min, self.max));
        }
        Ok(())
    }
}
