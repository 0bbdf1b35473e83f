//! Responses scored again after a masked prompt. STAPO hides the trajectory to measure how much a
//! turn depends on it. The gradient flows through the passes over the original and the masked
//! prompt.

use crate::TokenSequence;

/// A turn's response after a masked prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskedContext<'a> {
    /// Batch index of the response's own sequence.
    pub sequence: usize,
    /// Index of the response's span in that sequence.
    pub span: usize,
    /// The masked prompt followed by the unchanged response, which is the only span.
    pub tokens: &'a TokenSequence,
}

/// Results of one masked context, per response token, in nats.
#[derive(Clone, Copy, Debug)]
pub struct MaskedContextStatistics<'a> {
    /// Log-probs with the original prompt.
    pub full: &'a [f32],
    /// Log-probs with the masked prompt.
    pub masked: &'a [f32],
    /// Reference log-probs with the masked prompt; empty unless
    /// [`crate::MaskedContextPass::reference`] is set.
    pub reference: &'a [f32],
    /// Full-vocabulary `KL[pi(.|c) || pi(.|c masked)]`; empty unless
    /// [`crate::MaskedContextPass::divergences`] is set.
    pub kl: &'a [f64],
    /// Full-vocabulary `KL[pi(.|c masked) || pi_ref(.|c masked)]`; empty unless both `divergences`
    /// and `reference` are set.
    pub reference_kl: &'a [f64],
}

/// Loss of one masked context with its derivatives; an empty vector means zeros.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MaskedContextGradients {
    /// This masked context's share of the batch loss.
    pub loss: f64,
    /// Derivative of the loss with respect to `MaskedContextStatistics::full`.
    pub d_full: Vec<f32>,
    /// Derivative of the loss with respect to `MaskedContextStatistics::masked`.
    pub d_masked: Vec<f32>,
    /// Derivative of the loss with respect to `MaskedContextStatistics::kl`.
    pub d_kl: Vec<f64>,
    /// Derivative of the loss with respect to `MaskedContextStatistics::reference_kl`.
    pub d_reference_kl: Vec<f64>,
    /// Mean `KL[pi(.|c) || pi(.|c masked)]` per token, for metrics.
    pub kl: f64,
    /// Mean `KL[pi(.|c masked) || pi_ref(.|c masked)]` per token, for metrics.
    pub reference_kl: f64,
}
