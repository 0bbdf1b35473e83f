//! The learner and objective traits.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{
    GradientScale, LearnError, MaskedContext, MaskedContextGradients, MaskedContextStatistics,
    ObjectiveError, RequiredPasses, SecondPass, TokenSequence,
};

/// Forward-pass results of one sequence, per response token.
#[derive(Clone, Copy, Debug)]
pub struct TokenStatistics<'a> {
    /// For a policy, `log pi(token | context)` in nats; for a critic, the value of the state before
    /// the token.
    pub logprobs: &'a [f32],
    /// Full-vocabulary Shannon entropy in nats; empty unless [`RequiredPasses::entropies`] is set.
    pub entropies: &'a [f32],
    /// Full-vocabulary `KL[pi || pi_ref]` in nats; empty unless [`RequiredPasses::reference_kls`]
    /// is set.
    pub reference_kls: &'a [f64],
}

/// Log-probs and entropies of one sequence, per response token.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenScores {
    /// `log pi(token | context)` in nats.
    pub logprobs: Vec<f32>,
    /// Full-vocabulary Shannon entropy in nats.
    pub entropies: Vec<f32>,
}

/// Loss of one sequence with its derivatives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TokenGradients {
    /// This sequence's share of the batch loss.
    pub loss: f64,
    /// `d loss / d logprob` per response token.
    pub d_logprobs: Vec<f32>,
    /// `d loss / d entropy` per response token; empty if unused.
    pub d_entropies: Vec<f32>,
    /// `d loss / d KL` per response token; empty if unused.
    pub d_reference_kls: Vec<f64>,
    /// Metric sums.
    pub metrics: LossMetrics,
}

/// Thresholds of [`LossMetrics::log_ratio_above`], in nats.
pub const LOG_RATIO_BOUNDS: [f64; 7] = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0];

/// Metric sums over tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LossMetrics {
    /// Number of response tokens with nonzero weight.
    pub tokens: f64,
    /// Policy (surrogate) loss.
    pub policy_loss: f64,
    /// KL loss, coefficient included.
    pub kl_loss: f64,
    /// Entropy loss, coefficient included.
    pub entropy_loss: f64,
    /// Number of tokens whose ratio was clipped at the lower bound.
    pub clipped_low: f64,
    /// Number of tokens whose ratio was clipped at the upper bound.
    pub clipped_high: f64,
    /// Sum of `(r - 1) - ln r` over the tokens' importance ratios `r`: the k3 estimate of the KL to
    /// the old policy.
    pub approx_kl: f64,
    /// Estimated KL to the reference policy, without coefficient.
    pub reference_kl: f64,
    /// Sum of the importance ratios.
    pub ratio: f64,
    /// Largest `|ln ratio|`.
    pub max_log_ratio: f64,
    /// For each of [`LOG_RATIO_BOUNDS`], the number of tokens with a larger `|ln ratio|`. `ratio`
    /// is the importance ratio that the loss uses.
    pub log_ratio_above: [f64; LOG_RATIO_BOUNDS.len()],
    /// Entropies, if known.
    pub entropy: f64,
    /// Number of responses that were also scored after a masked prompt.
    pub masked_contexts: f64,
    /// Loss of the masked contexts, coefficients included.
    pub masked_context_loss: f64,
    /// Sum over masked contexts of the mean KL per token, from the policy after the original prompt
    /// to the policy after the masked prompt.
    pub masked_context_kl: f64,
    /// Sum over masked contexts of the mean KL per token, from the policy to the reference policy,
    /// both after the masked prompt.
    pub masked_context_reference_kl: f64,
}

impl LossMetrics {
    /// Adds another sequence's sums.
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

    /// Returns the fraction of tokens clipped on either side.
    pub fn clip_fraction(&self) -> f64 {
        self.mean(self.clipped_low + self.clipped_high)
    }

    /// Returns `sum / tokens`, or 0 without tokens.
    pub fn mean(&self, sum: f64) -> f64 {
        if self.tokens > 0.0 { sum / self.tokens } else { 0.0 }
    }
}

/// Loss in a form that training services support.
#[derive(Clone, Debug, PartialEq)]
pub enum DirectLoss {
    /// `-sum_t weight_t lp_t`.
    CrossEntropy {
        /// Weight per token.
        weights: Vec<f64>,
    },
    /// `-sum_t min(r_t A_t, clip(r_t, 1 - low, 1 + high) A_t)` with `r_t = exp(lp_t - old_t)`.
    Clipped {
        /// `old_t`, in nats.
        old_logprobs: Vec<f32>,
        /// `A_t` times the token's weight in the loss.
        advantages: Vec<f64>,
        /// Distance from 1 down to the ratio's lower clip bound.
        low: f64,
        /// Distance from 1 up to the ratio's upper clip bound.
        high: f64,
    },
}

/// A loss averaged over one optimizer batch, evaluated one sequence at a time in any order.
///
/// Losses that depend only on log-probs need only [`Objective::evaluate`]. The other methods are
/// for entropies, divergences, masked contexts and scaled gradients.
pub trait Objective: Sync {
    /// Returns the extra model passes whose results the objective needs.
    fn passes(&self) -> RequiredPasses {
        RequiredPasses::default()
    }

    /// Returns one sequence's share of the loss and its derivatives.
    ///
    /// # Errors
    /// Fails on an unknown sequence, a wrong array length, NaN or infinity.
    fn evaluate(
        &self,
        sequence: usize,
        tokens: TokenStatistics<'_>,
    ) -> Result<TokenGradients, ObjectiveError>;

    /// Returns one masked context's share of the loss. Called after [`Objective::evaluate`] for the
    /// response's own sequence.
    ///
    /// # Errors
    /// Fails like [`Objective::evaluate`]. The default implementation always fails.
    fn evaluate_masked_context(
        &self,
        masked_context: usize,
        _statistics: MaskedContextStatistics<'_>,
    ) -> Result<MaskedContextGradients, ObjectiveError> {
        let reason = format!("masked context {masked_context} was given, and the loss uses none");
        Err(ObjectiveError::Setting(reason))
    }

    /// Returns a sequence's loss as a [`DirectLoss`]; `None` if the loss has terms that this form
    /// cannot express, or if its gradient is scaled.
    fn direct(&self, _sequence: usize) -> Option<DirectLoss> {
        None
    }

    /// Returns the second pass of [`crate::GradientPass::ScaledByNorm`], whose gradient norm goes
    /// to [`Objective::gradient_scale`]; `None` if that norm is 0. Called after the backward pass.
    ///
    /// # Errors
    /// Fails if the first pass recorded no statistics.
    fn second_pass(&self) -> Result<Option<SecondPass<'_>>, ObjectiveError> {
        Ok(None)
    }

    /// Returns the factor on the accumulated gradient, given the L2 norm of the second pass's
    /// gradient (0 if there was no second pass). Called after the backward pass unless
    /// [`RequiredPasses::gradient`] is [`crate::GradientPass::Plain`].
    ///
    /// # Errors
    /// Fails on an invalid setting or NaN.
    fn gradient_scale(&self, _second_norm: f64) -> Result<GradientScale, ObjectiveError> {
        Ok(GradientScale { factor: 1.0, metrics: Vec::new() })
    }
}

/// Sequences and masked contexts of one pass.
#[derive(Clone, Debug, Default)]
pub struct TokenBatch<'a> {
    /// The sequences.
    pub sequences: Vec<&'a TokenSequence>,
    /// Responses to score again after masked prompts.
    pub masked_contexts: Vec<MaskedContext<'a>>,
}

impl<'a> TokenBatch<'a> {
    /// Creates a batch without masked contexts.
    pub fn of(sequences: impl IntoIterator<Item = &'a TokenSequence>) -> Self {
        Self { sequences: sequences.into_iter().collect(), masked_contexts: Vec::new() }
    }
}

/// Token ids, and the ranges of tokens over which to average the hidden states.
pub type HiddenRequest = (Vec<u32>, Vec<Range<usize>>);

/// Loss and metrics of one optimizer batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LossReport {
    /// The loss.
    pub loss: f64,
    /// Metric sums.
    pub metrics: LossMetrics,
    /// Number of tokens in all sequences, prompts included.
    pub total_tokens: usize,
    /// Number of tokens saved by computing shared prefixes only once.
    pub shared_tokens: usize,
}

/// Result of one optimizer step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepReport {
    /// Global L2 gradient norm before clipping.
    pub grad_norm: f64,
    /// Number of optimizer steps so far, including this one.
    pub step: u64,
}

/// Trains weights.
pub trait Learner {
    /// Accumulates the gradient of `objective` over `batch`.
    ///
    /// # Errors
    /// Fails on invalid sequences or masked contexts, missing inputs, and errors of the objective,
    /// device or service. Returns [`LearnError::Unsupported`] if the learner lacks a
    /// [pass](Objective::passes) that the objective needs.
    fn forward_backward(
        &mut self,
        batch: &TokenBatch<'_>,
        objective: &dyn Objective,
    ) -> Result<LossReport, LearnError>;

    /// Returns the response tokens' log-probs per sequence, without a gradient.
    ///
    /// # Errors
    /// Fails on invalid sequences and device or service errors.
    fn logprobs(&mut self, batch: &[&TokenSequence]) -> Result<Vec<Vec<f32>>, LearnError>;

    /// Clips the accumulated gradient, updates the weights and clears the gradient.
    ///
    /// # Errors
    /// Returns [`LearnError::Gradient`] if the norm is NaN or infinite; the weights are then
    /// unchanged. Also fails on an invalid learning rate and device or service errors.
    fn step(&mut self, learning_rate: f64) -> Result<StepReport, LearnError>;

    /// Returns the version of the weights, which increases by one with each update.
    fn weights_version(&self) -> u64;

    /// Returns the maximum sequence length in tokens.
    fn max_model_len(&self) -> usize;

    /// Returns the width of the last hidden state; 0 if unsupported.
    fn hidden_size(&self) -> usize {
        0
    }

    /// Returns, for each range, the mean of the last hidden states, a vector of
    /// [`Learner::hidden_size`] values.
    ///
    /// # Errors
    /// Fails on invalid ranges, or if the learner has no hidden states.
    fn mean_hidden(&mut self, _batch: &[HiddenRequest]) -> Result<Vec<Vec<Vec<f32>>>, LearnError> {
        Err(LearnError::Unsupported("hidden states"))
    }
}
