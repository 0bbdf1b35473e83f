//! Responses that are looked at once more after another prompt.
//!
//! Some objectives compare the distributions of one response under two prompts: STAPO asks how much a
//! turn depends on the trajectory by hiding the trajectory from it. The learner runs such a response
//! beside the sequence it comes from, and the gradient flows through both.

use crate::{LearnError, LossReport, Objective, ObjectiveError, TokenSequence};

/// One turn's response after another prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaskedContext {
    /// Which sequence of the batch the response is from.
    pub sequence: usize,
    /// Which span of that sequence.
    pub span: usize,
    /// The other prompt and the same response, which is its only span.
    pub tokens: TokenSequence,
}

/// What the forward passes found for one masked_context, one entry per response token.
#[derive(Clone, Copy, Debug)]
pub struct MaskedContextStatistics<'a> {
    /// Log-probabilities under the policy with the sequence's own prompt, in nats.
    pub full: &'a [f32],
    /// The same with the other prompt.
    pub blind: &'a [f32],
    /// The same under the reference policy with the other prompt; empty unless
    /// [`MaskedContextObjective::needs_reference`].
    pub reference: &'a [f32],
    /// `KL[pi(.|c) || pi(.|c blind)]` over the full vocabulary, in nats; empty unless
    /// [`MaskedContextObjective::needs_divergences`].
    pub aware: &'a [f64],
    /// `KL[pi(.|c blind) || pi_ref(.|c blind)]` over the full vocabulary, in nats; empty unless both
    /// divergences and the reference are needed.
    pub independent: &'a [f64],
}

/// Loss of one masked_context and its derivative with respect to each number of [`MaskedContextStatistics`] that
/// carries a gradient. An empty vector stands for zeros.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MaskedContextGradients {
    /// The masked_context's share of the batch's loss.
    pub loss: f64,
    /// With respect to `full`.
    pub d_full: Vec<f32>,
    /// With respect to `blind`.
    pub d_blind: Vec<f32>,
    /// With respect to `aware`.
    pub d_aware: Vec<f64>,
    /// With respect to `independent`.
    pub d_independent: Vec<f64>,
    /// Mean over tokens of the divergence from the other prompt, for the metrics.
    pub aware: f64,
    /// Mean over tokens of the other prompt's divergence from the reference, for the metrics.
    pub independent: f64,
}

/// A loss over the masked_contexts of one optimiser batch, evaluated one at a time.
pub trait MaskedContextObjective: Sync {
    /// Whether full-vocabulary divergences must be computed.
    fn needs_divergences(&self) -> bool;

    /// Whether the reference policy must be run.
    fn needs_reference(&self) -> bool;

    /// Whether the distribution after the other prompt is a constant in `aware`.
    fn detaches_blind(&self) -> bool;

    /// Loss share and derivatives of masked_context `masked_context`.
    fn evaluate(
        &self,
        masked_context: usize,
        statistics: MaskedContextStatistics<'_>,
    ) -> Result<MaskedContextGradients, ObjectiveError>;
}

/// A learner that can compare prompts.
pub trait MaskedContextLearner {
    /// As [`crate::Learner::forward_backward`], and adds the gradient of `objective.1` over the
    /// masked_contexts, run in the same passes.
    fn forward_backward_masked(
        &mut self,
        batch: &[TokenSequence],
        masked_contexts: &[MaskedContext],
        objective: (&dyn Objective, &dyn MaskedContextObjective),
    ) -> Result<LossReport, LearnError>;
}
