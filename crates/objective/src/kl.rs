//! Estimates of the KL divergence to the reference policy from the log-probabilities of sampled tokens.

use serde::{Deserialize, Serialize};

/// Bound on `|ln ref - ln pi|` inside the exponential of k3.
const LOG_RATIO_LIMIT: f64 = 20.0;

/// How `KL[pi || ref]` is estimated at a token, with `d = ln pi - ln ref`
/// (J. Schulman, "Approximating KL Divergence", 2020).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KlEstimator {
    /// `exp(-d) - 1 + d`: unbiased and never negative.
    #[default]
    K3,
    /// `d`: unbiased, may be negative.
    K1,
    /// `d^2 / 2`: biased, never negative.
    K2,
}

/// Where the penalty acts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KlPlace {
    /// Added to the loss, with a gradient.
    #[default]
    Loss,
    /// Subtracted from the reward before credit is assigned, without a gradient.
    Reward,
}

/// The estimate and its derivative with respect to the policy's log-probability.
///
/// `ln ref - ln pi` is clamped to [-20, 20] in k3, where the derivative of the exponential is 0 outside.
pub fn kl_estimate(estimator: KlEstimator, logprob: f64, ref_logprob: f64) -> (f64, f64) {
    let d = logprob - ref_logprob;
    match estimator {
        KlEstimator::K1 => (d, 1.0),
        KlEstimator::K2 => (0.5 * d * d, d),
        KlEstimator::K3 => {
            let clamped = (-d).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT);
            let ratio = clamped.exp();
            let slope = if d.abs() <= LOG_RATIO_LIMIT { ratio } else { 0.0 };
            // exp_m1 keeps the digits that 1 + d would lose for small d.
            (clamped.exp_m1() + d, 1.0 - slope)
        }
    }
}

/// What `where = "reward"` subtracts from a turn's reward: `coef * sum over its tokens` of the
/// estimate between the sampling policy and the reference.
pub fn reward_kl(estimator: KlEstimator, coef: f64, old_logprobs: &[f32], ref_logprobs: &[f32]) -> f64 {
    coef * old_logprobs
        .iter()
        .zip(ref_logprobs)
        .map(|(&old, &reference)| kl_estimate(estimator, f64::from(old), f64::from(reference)).0)
        .sum::<f64>()
}
