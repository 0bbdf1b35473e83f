//! The clipped surrogate with token, turn or sequence ratios.
//!
//! `loss = sum_t weight_t [ -min(w A_t, clip(w, 1 - low, 1 + high) A_t) + beta KL_t - eta H_t ]`
//!
//! where `w = exp(clamp(mean over the unit's tokens of (lp - old), -20, 20))`. The unit is the
//! token (PPO, Schulman et al. 2017), the turn (SORL, section 4.1) or the sequence (GSPO, Zheng et
//! al. 2025, arXiv 2507.18071). Each token of a unit gets the gradient `-w S_u / |u|`, with `S_u`
//! the sum of `weight_t A_t` over the unit's unclipped tokens (SORL, Lemma 4.1), so with a sequence
//! ratio all turns get the same gradient. If `w` is clipped from above, only negative advantages
//! have a gradient; from below, only positive ones.
//!
//! `ratio = "sequence-token"` is GSPO-token (section 4.3 of GSPO's paper):
//! `w_t = sg[w] exp(lp_t - sg[lp_t])`, where `sg` stops the gradient. Loss and clipping equal those
//! of `sequence`, but token t gets the gradient `-w weight_t A_t` unless `w` is clipped.
//!
//! Differs from the papers: [`crate::Aggregation`] weights the loss; `seq-mean-token-mean` is the
//! papers' `1/|y|`.

use turnwise_core::{
    DirectLoss, LOG_RATIO_BOUNDS, LossMetrics, Objective, ObjectiveError, Preset, RequiredPasses,
    TokenGradients, TokenStatistics,
};

use crate::{
    Aggregation, Clip, ClippingBias, Gradient, ObjectiveBatch, ObjectiveConfig, ObjectiveSequence, RatioKind,
    entropy_bonus, kl_estimate, token_weights,
};

/// GSPO with its narrow clip range and a gradient per token.
pub(crate) const PRESETS: &[Preset] = &[Preset::on(
    "grpo",
    "gspo",
    "[objective]\nratio = \"sequence-token\"\nclip = { low = 3e-4, high = 4e-4 }\nloss_agg_mode = \"seq-mean-token-mean\"",
)];

const LOG_RATIO_LIMIT: f64 = 20.0;

/// Active branch of the surrogate at a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surrogate {
    /// `w A` is active, so the gradient flows.
    Unclipped,
    /// A < 0 and `w < 1 - low`: no gradient.
    ClippedLow,
    /// A > 0 and `w > 1 + high`, or A < 0 and `w` above the dual clip: no gradient.
    ClippedHigh,
}

/// Returns the surrogate `min(w A, clip(w) A)` (dual clip: at least `c A` for A < 0) and its
/// branch.
pub fn surrogate(ratio: f64, advantage: f64, clip: Clip, dual_clip: Option<f64>) -> (f64, Surrogate) {
    let (low, high) = (1.0 - clip.low, 1.0 + clip.high);
    if advantage > 0.0 && ratio > high {
        (high * advantage, Surrogate::ClippedHigh)
    } else if advantage < 0.0 && ratio < low {
        (low * advantage, Surrogate::ClippedLow)
    } else if let Some(bound) = dual_clip
        && advantage < 0.0
        && ratio > bound
    {
        (bound * advantage, Surrogate::ClippedHigh)
    } else {
        (ratio * advantage, Surrogate::Unclipped)
    }
}

/// Policy objective of one optimizer batch.
#[derive(Clone, Debug)]
pub struct PolicyObjective {
    config: ObjectiveConfig,
    batch: ObjectiveBatch,
    weights: Vec<Vec<f64>>,
    /// Weights `1 / (B |y|)` in the clipping bias.
    sequence_weights: Vec<Vec<f64>>,
}

impl PolicyObjective {
    /// Creates the objective over `batch`.
    ///
    /// # Errors
    /// Fails on invalid settings, wrong array lengths, NaN and infinity.
    pub fn new(config: &ObjectiveConfig, batch: ObjectiveBatch) -> Result<Self, ObjectiveError> {
        config.check()?;
        Self::new_unchecked(config, batch)
    }

    /// Like `new`, but the KL coefficient may exceed the config's bounds.
    pub(crate) fn new_unchecked(
        config: &ObjectiveConfig,
        batch: ObjectiveBatch,
    ) -> Result<Self, ObjectiveError> {
        batch.check(config)?;
        let weights = token_weights(config.loss_agg_mode, &batch);
        let sequence_weights = token_weights(Aggregation::SeqMeanTokenMean, &batch);
        Ok(Self { config: config.clone(), batch, weights, sequence_weights })
    }

    /// Returns the batch.
    pub fn batch(&self) -> &ObjectiveBatch {
        &self.batch
    }

    /// Returns each response token's weight in the loss, `[sequence][token]` ([`Aggregation`]).
    pub fn weights(&self) -> &[Vec<f64>] {
        &self.weights
    }

    /// Returns one sequence's part of the loss and its derivatives. `entropies` may be empty if
    /// there is no entropy bonus.
    ///
    /// # Errors
    /// Fails on wrong lengths, and on NaN or infinity at an unmasked token.
    pub fn gradient(
        &self,
        sequence: usize,
        logprobs: &[f64],
        entropies: &[f64],
    ) -> Result<Gradient, ObjectiveError> {
        self.gradient_with(sequence, logprobs, entropies, &[])
    }

    /// Like [`PolicyObjective::gradient`], but also takes full-vocabulary KLs to the reference
    /// policy; the KLs may be empty unless [needed](ObjectiveConfig::needs_reference_kls).
    ///
    /// # Errors
    /// Fails like [`PolicyObjective::gradient`].
    pub fn gradient_with(
        &self,
        sequence: usize,
        logprobs: &[f64],
        entropies: &[f64],
        reference_kls: &[f64],
    ) -> Result<Gradient, ObjectiveError> {
        let data = self.check(sequence, logprobs, entropies)?;
        let weights = &self.weights[sequence];
        let advantages = data.token_advantages();
        let mut gradient = Gradient { d_logprobs: vec![0.0; logprobs.len()], ..Gradient::default() };
        for unit in units(self.config.ratio, data) {
            self.unit(data, weights, &advantages, logprobs, &unit, &mut gradient);
        }
        // The full-vocabulary KL replaces the estimate.
        if let Some(reference) = data.ref_logprobs.as_ref().filter(|_| !self.config.needs_reference_kls()) {
            self.reference(weights, logprobs, reference, &mut gradient);
        }
        if self.config.needs_reference_kls() {
            check_numbers(sequence, data, "reference_kls", reference_kls)?;
            gradient.d_reference_kls = weights.iter().map(|weight| self.config.kl.coef * weight).collect();
            for (weight, kl) in weights.iter().zip(reference_kls).filter(|pair| *pair.0 != 0.0) {
                gradient.metrics.reference_kl += kl;
                gradient.metrics.kl_loss += self.config.kl.coef * weight * kl;
            }
        }
        if !entropies.is_empty() {
            gradient.metrics.entropy =
                weights.iter().zip(entropies).filter(|pair| *pair.0 != 0.0).map(|pair| pair.1).sum();
            if self.config.entropy_coef != 0.0 {
                let (loss, slopes) = entropy_bonus(self.config.entropy_coef, weights, entropies);
                gradient.metrics.entropy_loss = loss;
                gradient.d_entropies = slopes;
            }
        }
        let LossMetrics { policy_loss, kl_loss, entropy_loss, .. } = gradient.metrics;
        gradient.loss = policy_loss + kl_loss + entropy_loss;
        Ok(gradient)
    }

    /// Returns one sequence's clipping bias (SORL) and its derivative through the ratio. For any
    /// aggregation, the bias is `1 / (B |y|) 1[clipped] w_t A_t` per token.
    ///
    /// # Errors
    /// Fails like [`PolicyObjective::gradient`].
    pub fn clipping_bias(&self, sequence: usize, logprobs: &[f64]) -> Result<ClippingBias, ObjectiveError> {
        let data = self.check_logprobs(sequence, logprobs)?;
        let weights = &self.sequence_weights[sequence];
        let advantages = data.token_advantages();
        let zeros = vec![0.0; logprobs.len()];
        let mut bias = ClippingBias { entries: zeros.clone(), d_logprobs: zeros, clipped: 0 };
        for unit in units(self.config.ratio, data) {
            let (mean, ratio) = unit_ratio(data, logprobs, &unit);
            let mut sum = 0.0;
            for &token in &unit {
                let branch = surrogate(ratio, advantages[token], self.config.clip, self.config.dual_clip).1;
                if branch != Surrogate::Unclipped {
                    bias.entries[token] = weights[token] * ratio * advantages[token];
                    bias.clipped += 1;
                    sum += bias.entries[token];
                }
            }
            if mean.abs() <= LOG_RATIO_LIMIT {
                for &token in &unit {
                    bias.d_logprobs[token] =
                        if self.is_detached() { bias.entries[token] } else { sum / unit.len() as f64 };
                }
            }
        }
        Ok(bias)
    }

    /// Returns the surrogate's branch for each response token; masked tokens are unclipped.
    ///
    /// # Errors
    /// Fails like [`PolicyObjective::gradient`].
    pub fn branches(&self, sequence: usize, logprobs: &[f64]) -> Result<Vec<Surrogate>, ObjectiveError> {
        let data = self.check_logprobs(sequence, logprobs)?;
        let advantages = data.token_advantages();
        let mut branches = vec![Surrogate::Unclipped; logprobs.len()];
        for unit in units(self.config.ratio, data) {
            let (_, ratio) = unit_ratio(data, logprobs, &unit);
            for token in unit {
                branches[token] =
                    surrogate(ratio, advantages[token], self.config.clip, self.config.dual_clip).1;
            }
        }
        Ok(branches)
    }

    /// Returns whether the gradient treats the ratio as constant.
    fn is_detached(&self) -> bool {
        self.config.ratio == RatioKind::SequenceToken
    }

    fn unit(
        &self,
        data: &ObjectiveSequence,
        weights: &[f64],
        advantages: &[f64],
        logprobs: &[f64],
        unit: &[usize],
        gradient: &mut Gradient,
    ) {
        let size = unit.len() as f64;
        let (mean, ratio) = unit_ratio(data, logprobs, unit);
        let log_ratio = mean.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT);
        // Outside the clamp the ratio is constant.
        let has_gradient = mean.abs() <= LOG_RATIO_LIMIT;
        // Sum of weight * A over the unclipped tokens: the factor of d ratio.
        let mut unclipped = 0.0;
        let metrics = &mut gradient.metrics;
        for &token in unit {
            let (value, branch) =
                surrogate(ratio, advantages[token], self.config.clip, self.config.dual_clip);
            metrics.policy_loss -= weights[token] * value;
            match branch {
                Surrogate::Unclipped if self.is_detached() && has_gradient => {
                    gradient.d_logprobs[token] -= ratio * weights[token] * advantages[token];
                }
                Surrogate::Unclipped => unclipped += weights[token] * advantages[token],
                Surrogate::ClippedLow => metrics.clipped_low += 1.0,
                Surrogate::ClippedHigh => metrics.clipped_high += 1.0,
            }
        }
        metrics.tokens += size;
        metrics.ratio += ratio * size;
        metrics.approx_kl += (log_ratio.exp_m1() - log_ratio) * size;
        metrics.max_log_ratio = metrics.max_log_ratio.max(mean.abs());
        for (tokens, bound) in metrics.log_ratio_above.iter_mut().zip(LOG_RATIO_BOUNDS) {
            *tokens += if mean.abs() > bound { size } else { 0.0 };
        }
        if has_gradient && unclipped != 0.0 {
            for &token in unit {
                gradient.d_logprobs[token] -= ratio * unclipped / size;
            }
        }
    }

    /// Adds the KL penalty, or only its metric if the penalty is in the reward.
    fn reference(&self, weights: &[f64], logprobs: &[f64], reference: &[f32], gradient: &mut Gradient) {
        let coef = if self.config.needs_reference_logprobs() { self.config.kl.coef } else { 0.0 };
        for (token, (&weight, &logprob)) in weights.iter().zip(logprobs).enumerate() {
            if weight == 0.0 {
                continue;
            }
            let (value, slope) = kl_estimate(self.config.kl.estimator, logprob, f64::from(reference[token]));
            gradient.metrics.reference_kl += value;
            gradient.metrics.kl_loss += coef * weight * value;
            gradient.d_logprobs[token] += coef * weight * slope;
        }
    }

    fn check(
        &self,
        sequence: usize,
        logprobs: &[f64],
        entropies: &[f64],
    ) -> Result<&ObjectiveSequence, ObjectiveError> {
        let data = self.check_logprobs(sequence, logprobs)?;
        if !entropies.is_empty() || self.config.entropy_coef != 0.0 {
            check_numbers(sequence, data, "entropies", entropies)?;
        }
        Ok(data)
    }

    fn check_logprobs(
        &self,
        sequence: usize,
        logprobs: &[f64],
    ) -> Result<&ObjectiveSequence, ObjectiveError> {
        let Some(data) = self.batch.sequences.get(sequence) else {
            return Err(ObjectiveError::Setting(format!(
                "sequence {sequence} was asked for, the batch has {}",
                self.batch.sequences.len()
            )));
        };
        check_numbers(sequence, data, "logprobs", logprobs)?;
        Ok(data)
    }
}

fn check_numbers(
    sequence: usize,
    data: &ObjectiveSequence,
    what: &'static str,
    values: &[f64],
) -> Result<(), ObjectiveError> {
    let expected = data.response_tokens();
    if values.len() != expected {
        return Err(ObjectiveError::Length { sequence, what, found: values.len(), expected });
    }
    let bad = values.iter().enumerate().find(|(token, value)| data.counts(*token) && !value.is_finite());
    match bad {
        Some((token, &value)) => Err(ObjectiveError::NotFinite { sequence, token, what, value }),
        None => Ok(()),
    }
}

fn unit_ratio(data: &ObjectiveSequence, logprobs: &[f64], unit: &[usize]) -> (f64, f64) {
    let sum: f64 = unit.iter().map(|&token| logprobs[token] - f64::from(data.old_logprobs[token])).sum();
    let mean = sum / unit.len() as f64;
    (mean, mean.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp())
}

/// Returns the non-empty sets of unmasked tokens that share a ratio.
fn units(kind: RatioKind, data: &ObjectiveSequence) -> Vec<Vec<usize>> {
    let counting = |range: std::ops::Range<usize>| range.filter(|&token| data.counts(token));
    let mut units: Vec<Vec<usize>> = match kind {
        RatioKind::Token => counting(0..data.response_tokens()).map(|token| vec![token]).collect(),
        RatioKind::Turn => data.ranges().map(|range| counting(range).collect()).collect(),
        RatioKind::Sequence | RatioKind::SequenceToken => vec![counting(0..data.response_tokens()).collect()],
    };
    units.retain(|unit| !unit.is_empty());
    units
}

impl Objective for PolicyObjective {
    fn passes(&self) -> RequiredPasses {
        self.config.passes()
    }

    fn evaluate(
        &self,
        sequence: usize,
        tokens: TokenStatistics<'_>,
    ) -> Result<TokenGradients, ObjectiveError> {
        let widen = |values: &[f32]| values.iter().copied().map(f64::from).collect::<Vec<_>>();
        let (logprobs, entropies) = (widen(tokens.logprobs), widen(tokens.entropies));
        self.gradient_with(sequence, &logprobs, &entropies, tokens.reference_kls).map(Into::into)
    }

    /// Only token ratios have a direct loss. At log-ratios beyond ±20, which this objective clamps,
    /// training services keep the gradient.
    fn direct(&self, sequence: usize) -> Option<DirectLoss> {
        let config = &self.config;
        let added = config.dual_clip.is_some() || config.entropy_coef != 0.0 || config.needs_reference();
        if added || config.ratio != RatioKind::Token {
            return None;
        }
        let (data, weights) = (self.batch.sequences.get(sequence)?, self.weights.get(sequence)?);
        // Masked tokens may have NaN.
        let weighted =
            |(advantage, &weight): (f64, &f64)| if weight == 0.0 { 0.0 } else { advantage * weight };
        let counted = |(token, &old)| if data.counts(token) { old } else { 0.0 };
        Some(DirectLoss::Clipped {
            old_logprobs: data.old_logprobs.iter().enumerate().map(counted).collect(),
            advantages: data.token_advantages().into_iter().zip(weights).map(weighted).collect(),
            low: config.clip.low,
            high: config.clip.high,
        })
    }
}
