//! Rollout correction: importance weights for tokens that another policy sampled.
//!
//! The sampling policy `mu` differs from `pi_old`, the policy before the step's updates, because
//! servers compute in 16 bits and asynchronous rollouts use older weights. Each token's surrogate
//! is multiplied by a constant weight:
//!
//! `c_t = pi_old(y_t) / mu(y_t)` (`token`), or `c = prod_t pi_old(y_t) / mu(y_t)` (`sequence`).
//!
//! The weight is either truncated to `min(c, cap)` (TIS; Espeholt et al. 2018 for V-trace), or
//! masked: set to 0 unless `c` is within `[floor, cap]` (MIS, IcePop). With this weight, clipping
//! limits only the change of the policy during the update (decoupled PPO, Hilton et al. 2022).
//! TRL's `vllm_importance_sampling_mode` and verl's `rollout_correction` are equivalent settings.
//!
//! The weights multiply the advantages. The KL penalty and the entropy bonus keep weight 1, as in
//! TRL and verl.

use serde::{Deserialize, Serialize};
use turnwise_core::ObjectiveError;

use crate::{Advantages, ObjectiveSequence};

const LOG_RATIO_LIMIT: f64 = 20.0;

/// Which tokens share a weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CorrectionLevel {
    /// One weight per token: low variance, but biased because the sampling policy visits other
    /// states.
    #[default]
    Token,
    /// One weight per sequence, the product over its tokens: unbiased before truncation, but
    /// extreme for long responses.
    Sequence,
}

/// What happens to weights outside the bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CorrectionMode {
    /// Weights above `cap` become `cap`.
    #[default]
    Truncate,
    /// Weights outside `[floor, cap]` become 0.
    Mask,
}

/// Importance weights for tokens that another policy sampled.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RolloutCorrection {
    /// Which tokens share a weight.
    pub level: CorrectionLevel,
    /// What happens to weights outside the bounds.
    pub mode: CorrectionMode,
    /// Upper bound of a weight.
    #[schemars(range(min = 1.0, max = 1e6))]
    pub cap: f64,
    /// Lower bound of a weight, for `mode = "mask"`.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub floor: f64,
}

impl Default for RolloutCorrection {
    fn default() -> Self {
        Self { level: CorrectionLevel::Token, mode: CorrectionMode::Truncate, cap: 2.0, floor: 0.0 }
    }
}

/// Sums over unmasked tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CorrectionSums {
    /// Number of tokens.
    pub tokens: f64,
    /// Sum of `log mu - log pi_old`: the k1 estimate of `KL[mu || pi_old]`.
    pub kl: f64,
    /// Sum of the k3 estimates of `KL[mu || pi_old]`.
    pub k3: f64,
    /// Sum of the weights.
    pub weight: f64,
    /// Sum of the squared weights.
    pub square: f64,
    /// Largest weight before truncation or masking.
    pub largest: f64,
    /// Number of tokens whose weight was truncated or masked.
    pub cut: f64,
}

impl CorrectionSums {
    /// Adds the sums of another sequence.
    pub fn add(&mut self, other: &Self) {
        self.tokens += other.tokens;
        self.kl += other.kl;
        self.k3 += other.k3;
        self.weight += other.weight;
        self.square += other.square;
        self.largest = self.largest.max(other.largest);
        self.cut += other.cut;
    }

    /// Returns `sum` divided by the number of tokens, or 0 without tokens.
    pub fn mean(&self, sum: f64) -> f64 {
        if self.tokens > 0.0 { sum / self.tokens } else { 0.0 }
    }

    /// Returns the effective sample size per token, `(sum c)^2 / (n sum c^2)`; 1 for equal weights.
    pub fn effective_share(&self) -> f64 {
        if self.square > 0.0 { self.weight * self.weight / (self.tokens * self.square) } else { 0.0 }
    }
}

impl RolloutCorrection {
    /// Returns each response token's weight and the sums, from log-probs under the sampling policy
    /// and `sequence.old_logprobs`.
    ///
    /// # Errors
    /// Fails on wrong lengths, and on NaN or infinity at an unmasked token.
    pub fn weights(
        &self,
        index: usize,
        sequence: &ObjectiveSequence,
        sampled: &[f32],
    ) -> Result<(Vec<f64>, CorrectionSums), ObjectiveError> {
        let (expected, found) = (sequence.response_tokens(), sampled.len());
        if found != expected {
            let what = "log-probs of the sampler";
            return Err(ObjectiveError::Length { sequence: index, what, found, expected });
        }
        let counting: Vec<usize> = (0..expected).filter(|&token| sequence.counts(token)).collect();
        let mut logs = vec![0.0; expected];
        let mut sums = CorrectionSums { tokens: counting.len() as f64, ..CorrectionSums::default() };
        for &token in &counting {
            let log_ratio = f64::from(sequence.old_logprobs[token]) - f64::from(sampled[token]);
            if !log_ratio.is_finite() {
                let what = "log-ratio of learner and sampler";
                return Err(ObjectiveError::NotFinite { sequence: index, token, what, value: log_ratio });
            }
            sums.kl -= log_ratio;
            sums.k3 += log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp_m1() - log_ratio;
            logs[token] = log_ratio;
        }
        if self.level == CorrectionLevel::Sequence {
            let sum: f64 = counting.iter().map(|&token| logs[token]).sum();
            logs.fill(sum);
        }
        let mut weights = vec![0.0; expected];
        for &token in &counting {
            let ratio = logs[token].clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp();
            let weight = match self.mode {
                CorrectionMode::Truncate => ratio.min(self.cap),
                CorrectionMode::Mask if (self.floor..=self.cap).contains(&ratio) => ratio,
                CorrectionMode::Mask => 0.0,
            };
            weights[token] = weight;
            sums.weight += weight;
            sums.square += weight * weight;
            sums.largest = sums.largest.max(ratio);
            sums.cut += f64::from(u8::from(weight != ratio));
        }
        Ok((weights, sums))
    }

    /// Multiplies a sequence's advantages by its tokens' weights, and returns the sums.
    ///
    /// # Errors
    /// Fails like [`RolloutCorrection::weights`].
    pub fn apply(
        &self,
        index: usize,
        sequence: &mut ObjectiveSequence,
        sampled: &[f32],
    ) -> Result<CorrectionSums, ObjectiveError> {
        let (weights, sums) = self.weights(index, sequence, sampled)?;
        let mut advantages = sequence.token_advantages();
        if advantages.len() != weights.len() {
            let (what, found, expected) = ("advantages", advantages.len(), weights.len());
            return Err(ObjectiveError::Length { sequence: index, what, found, expected });
        }
        advantages.iter_mut().zip(&weights).for_each(|(advantage, weight)| *advantage *= weight);
        sequence.advantages = Advantages::PerToken(advantages);
        Ok(sums)
    }
}
