//! The learner and objective traits.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{
    GradientScale, LearnError, MaskedContext, MaskedContextGradients, MaskedContextStatistics,
    ObjectiveError, RequiredPasses, SecondPass, TokenSequence,
};

/// Results of the learner's forward pass over one sequence, one entry per response token.
#[derive(Clone, Copy, Debug)]
pub struct TokenStatistics<'a> {
    /// `log pi(token | context)` in nats. For a critic: its value before the token.
    pub logprobs: &'a [f32],
    /// Full-vocabulary Shannon entropy in nats; empty unless [`RequiredPasses::entropies`].
    pub entropies: &'a [f32],
    /// Full-vocabulary `KL[pi || pi_ref]` in nats; empty unless [`RequiredPasses::reference_kls`].
    pub reference_kls: &'a [f64],
}

/// Log-probs and entropies of one sequence, one entry per response token, without a gradient.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenScores {
    /// `log pi(token | context)` in nats.
    pub logprobs: Vec<f32>,
    /// Full-vocabulary Shannon entropy in nats.
    pub entropies: Vec<f32>,
}

/// Loss of one sequence and its derivative with respect to each number of [`TokenStatistics`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TokenGradients {
    /// The sequence's part of the batch loss; the parts sum to the loss.
    pub loss: f64,
    /// `d loss / d logprob`, one per response token.
    pub d_logprobs: Vec<f32>,
    /// `d loss / d entropy`, one per response token; empty if the loss has no entropy term.
    pub d_entropies: Vec<f32>,
    /// `d loss / d KL`, one per response token; empty if the loss has no full-vocabulary KL term.
    pub d_reference_kls: Vec<f64>,
    /// Sums for the metrics.
    pub metrics: LossMetrics,
}

/// Thresholds of [`LossMetrics::log_ratio_above`], in nats.
pub const LOG_RATIO_BOUNDS: [f64; 7] = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0];

/// Sums over tokens, added over sequences, so that metrics do not depend on micro-batches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LossMetrics {
    /// Number of response tokens with nonzero weight.
    pub tokens: f64,
    /// Policy (surrogate) part of the loss.
    pub policy_loss: f64,
    /// KL part of the loss, coefficient included.
    pub kl_loss: f64,
    /// Entropy part of the loss, coefficient included.
    pub entropy_loss: f64,
    /// Tokens clipped at the lower bound.
    pub clipped_low: f64,
    /// Tokens clipped at the upper bound.
    pub clipped_high: f64,
    /// Sum of `(r - 1) - ln r`, an estimate of the KL from the old policy (k3).
    pub approx_kl: f64,
    /// Sum of the KL estimate to the reference policy, without coefficient.
    pub reference_kl: f64,
    /// Sum of importance ratios.
    pub ratio: f64,
    /// Largest `|ln ratio|`.
    pub max_log_ratio: f64,
    /// Number of tokens whose `|ln ratio|` is above each of [`LOG_RATIO_BOUNDS`], with the loss's
    /// ratio (per token, turn or sequence).
    pub log_ratio_above: [f64; LOG_RATIO_BOUNDS.len()],
    /// Sum of entropies, if known.
    pub entropy: f64,
    /// Number of responses that were also scored after a masked prompt.
    pub masked_contexts: f64,
    /// Sum of the masked contexts' parts of the loss, coefficients included.
    pub masked_context_loss: f64,
    /// Sum of the KLs from the original to the masked prompt's distribution.
    pub masked_context_kl: f64,
    /// Sum of the KLs from the masked prompt's distribution to the reference policy's.
    pub masked_context_reference_kl: f64,
}

impl LossMetrics {
    /// Adds the sums of another sequence.
    pub fn add(&mut self, other: &Self) {
        self.tokens += other.tokens;
        self.policy_loss += other.policy_loss;
        self.kl_loss += other.kl_loss;
        self.entropy_loss += other.entropy_loss;
        self.clipped_low += other.clipped_low;
        self.clipped_high += other.clipped_high;
        self.approx_kl += other.approx_kl;
        self.reference_kl += other.reference_kl;
        self.ratio += other.ratio;
        self.max_log_ratio = self.max_log_ratio.max(other.max_log_ratio);
        for (tokens, more) in self.log_ratio_above.iter_mut().zip(other.log_ratio_above) {
            *tokens += more;
        }
        self.entropy += other.entropy;
        self.masked_contexts += other.masked_contexts;
        self.masked_context_loss += other.masked_context_loss;
        self.masked_context_kl += other.masked_context_kl;
        self.masked_context_reference_kl += other.masked_context_reference_kl;
    }

    /// Returns the fraction of tokens that were clipped on either side.
    pub fn clip_fraction(&self) -> f64 {
        self.mean(self.clipped_low + self.clipped_high)
    }

    /// Returns `sum / tokens`, or 0 without tokens.
    pub fn mean(&self, sum: f64) -> f64 {
        if self.tokens > 0.0 { sum / self.tokens } else { 0.0 }
    }
}

/// The loss of one sequence, in a form that training services support by name.
#[derive(Clone, Debug, PartialEq)]
pub enum DirectLoss {
    /// `-sum_t weight_t lp_t`.
    CrossEntropy {
        /// Weight of every token.
        weights: Vec<f64>,
    },
    /// `-sum_t min(r_t A_t, clip(r_t, 1 - low, 1 + high) A_t)` with `r_t = exp(lp_t - old_t)`.
    Clipped {
        /// `old_t`, in nats.
        old_logprobs: Vec<f32>,
        /// `A_t`, multiplied by the weight of the token in the loss.
        advantages: Vec<f64>,
        /// Distance of the lower bound from 1.
        low: f64,
        /// Distance of the upper bound from 1.
        high: f64,
    },
}

/// A loss over one optimizer batch, evaluated one sequence at a time, in any order and packing. The
/// loss averages over the whole batch.
///
/// A loss of log-probs needs only [`Objective::evaluate`]. The other methods are for losses that
/// also use entropies, divergences or masked contexts, or scale their gradient.
pub trait Objective: Sync {
    /// Returns the passes that fill the statistics. Log-probs need none.
    fn passes(&self) -> RequiredPasses {
        RequiredPasses::default()
    }

    /// Returns one sequence's part of the loss and its derivatives.
    ///
    /// # Errors
    /// Fails on a sequence outside the batch, a wrong array length, or NaN or infinity at a
    /// weighted token.
    fn evaluate(
        &self,
        sequence: usize,
        tokens: TokenStatistics<'_>,
    ) -> Result<TokenGradients, ObjectiveError>;

    /// Returns one masked context's part of the loss and its derivatives. Called after the sequence
    /// that contains the response, if [`RequiredPasses::masked_context`] is set.
    ///
    /// # Errors
    /// Fails on an unknown masked context, a wrong array length, or NaN or infinity at a weighted
    /// token. By default, always fails.
    fn evaluate_masked_context(
        &self,
        masked_context: usize,
        _statistics: MaskedContextStatistics<'_>,
    ) -> Result<MaskedContextGradients, ObjectiveError> {
        let reason = format!("masked context {masked_context} was given, and the loss uses none");
        Err(ObjectiveError::Setting(reason))
    }

    /// Returns the loss of a sequence as a [`DirectLoss`]; `None` if it has other terms or a scaled
    /// gradient.
    fn direct(&self, _sequence: usize) -> Option<DirectLoss> {
        None
    }

    /// Returns the pass whose gradient norm [`Objective::gradient_scale`] needs, or `None` if the
    /// norm is 0. Called after the backward pass, unless [`RequiredPasses::gradient`] is
    /// [`crate::GradientPass::Plain`]; returns `None` unless it is
    /// [`crate::GradientPass::ScaledByNorm`].
    ///
    /// # Errors
    /// Fails if statistics of the first pass are missing.
    fn second_pass(&self) -> Result<Option<SecondPass<'_>>, ObjectiveError> {
        Ok(None)
    }

    /// Returns the factor on the accumulated gradient, given the L2 norm of the second pass's
    /// gradient (0 without one). Called after the backward pass, unless
    /// [`RequiredPasses::gradient`] is [`crate::GradientPass::Plain`].
    ///
    /// # Errors
    /// Fails on an invalid setting, or a NaN norm.
    fn gradient_scale(&self, _second_norm: f64) -> Result<GradientScale, ObjectiveError> {
        Ok(GradientScale { factor: 1.0, metrics: Vec::new() })
    }
}

/// The sequences of one forward and backward pass, with masked contexts of some of their turns.
#[derive(Clone, Debug, Default)]
pub struct TokenBatch<'a> {
    /// The sequences.
    pub sequences: Vec<&'a TokenSequence>,
    /// Responses to score again after masked prompts; often empty.
    pub masked_contexts: Vec<MaskedContext<'a>>,
}

impl<'a> TokenBatch<'a> {
    /// Creates a batch without masked contexts.
    pub fn of(sequences: impl IntoIterator<Item = &'a TokenSequence>) -> Self {
        Self { sequences: sequences.into_iter().collect(), masked_contexts: Vec::new() }
    }
}

/// Token ids, with ranges over which to average hidden states.
pub type HiddenRequest = (Vec<u32>, Vec<Range<usize>>);

/// Loss and metrics of a forward and backward pass over one optimizer batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LossReport {
    /// The loss.
    pub loss: f64,
    /// Metric sums over the batch's tokens.
    pub metrics: LossMetrics,
    /// Tokens of all sequences, prompts included.
    pub total_tokens: usize,
    /// Tokens skipped because another sequence had the same prefix.
    pub shared_tokens: usize,
}

/// Result of one optimizer step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepReport {
    /// Global L2 norm of the gradient before clipping.
    pub grad_norm: f64,
    /// Optimizer steps so far, including this one.
    pub step: u64,
}

/// Trains weights: a native model or a training service.
pub trait Learner {
    /// Accumulates the gradient of `objective` over `batch`.
    ///
    /// # Errors
    /// Fails on invalid sequences, masked contexts that do not end in their span's response, errors
    /// of the objective, missing inputs (such as a reference policy), and failures of a device or
    /// service. Returns [`LearnError::Unsupported`] if the learner cannot run the objective's
    /// [passes](Objective::passes) or masked contexts.
    fn forward_backward(
        &mut self,
        batch: &TokenBatch<'_>,
        objective: &dyn Objective,
    ) -> Result<LossReport, LearnError>;

    /// Returns the log-probs of the response tokens, one vector per sequence, without a gradient.
    ///
    /// # Errors
    /// Fails on invalid sequences, and failures of a device or service.
    fn logprobs(&mut self, batch: &[&TokenSequence]) -> Result<Vec<Vec<f32>>, LearnError>;

    /// Clips the accumulated gradient, updates the weights with `learning_rate` and clears the
    /// gradient.
    ///
    /// # Errors
    /// Returns [`LearnError::Gradient`] if the gradient norm is NaN or infinite, and leaves the
    /// weights unchanged. Also fails on an invalid learning rate, or if a device or service fails.
    fn step(&mut self, learning_rate: f64) -> Result<StepReport, LearnError>;

    /// Returns the version of the weights, which increases by one with each update.
    fn weights_version(&self) -> u64;

    /// Returns the maximum length of a sequence in tokens.
    fn max_model_len(&self) -> usize;

    /// Returns the width of the last hidden state; 0 if hidden states are not supported.
    fn hidden_size(&self) -> usize {
        0
    }

    /// Returns the mean last hidden state over each range of tokens, [`Learner::hidden_size`]
    /// values per range.
    ///
    /// # Errors
    /// Fails on invalid ranges, and with [`LearnError::Unsupported`] if hidden states are not
    /// supported.
    fn mean_hidden(&mut self, _batch: &[HiddenRequest]) -> Result<Vec<Vec<Vec<f32>>>, LearnError> {
        Err(LearnError::Unsupported("hidden states"))
    }
}
