//! Responses that are scored again after a masked prompt.
//!
//! Some objectives compare the distributions of one response under two prompts. STAPO hides the
//! trajectory to measure how much a turn depends on it. The gradient flows through both passes.

use crate::TokenSequence;

/// One turn's response after a masked prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskedContext<'a> {
    /// Index in the batch of the sequence that contains the response.
    pub sequence: usize,
    /// Index of the response's span in that sequence.
    pub span: usize,
    /// The masked prompt and the same response, its only span.
    pub tokens: &'a TokenSequence,
}

/// Forward-pass results of one masked context, one entry per response token.
#[derive(Clone, Copy, Debug)]
pub struct MaskedContextStatistics<'a> {
    /// Log-probs under the policy with the original prompt, in nats.
    pub full: &'a [f32],
    /// Log-probs under the policy with the masked prompt, in nats.
    pub masked: &'a [f32],
    /// Log-probs under the reference policy with the masked prompt, in nats; empty unless
    /// [`crate::MaskedContextPass::reference`].
    pub reference: &'a [f32],
    /// `KL[pi(.|c) || pi(.|c masked)]` over the full vocabulary, in nats; empty unless
    /// [`crate::MaskedContextPass::divergences`].
    pub kl: &'a [f64],
    /// `KL[pi(.|c masked) || pi_ref(.|c masked)]` over the full vocabulary, in nats; empty unless both
    /// divergences and the reference are needed.
    pub reference_kl: &'a [f64],
}

/// Loss of one masked context and its derivatives with respect to [`MaskedContextStatistics`]. An
/// empty vector means zeros.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MaskedContextGradients {
    /// The masked context's part of the batch loss.
    pub loss: f64,
    /// With respect to `full`.
    pub d_full: Vec<f32>,
    /// With respect to `masked`.
    pub d_masked: Vec<f32>,
    /// With respect to `kl`.
    pub d_kl: Vec<f64>,
    /// With respect to `reference_kl`.
    pub d_reference_kl: Vec<f64>,
    /// Mean over tokens of `KL[pi(.|c) || pi(.|c masked)]`, for metrics.
    pub kl: f64,
    /// Mean over tokens of `KL[pi(.|c masked) || pi_ref(.|c masked)]`, for metrics.
    pub reference_kl: f64,
}
