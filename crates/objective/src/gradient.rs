//! The objective's f64 results.

use turnwise_core::{LossMetrics, TokenGradients};

/// One sequence's loss and derivatives in f64, before rounding to [`TokenGradients`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gradient {
    /// This sequence's part of the batch loss.
    pub loss: f64,
    /// `d loss / d logprob` per response token.
    pub d_logprobs: Vec<f64>,
    /// `d loss / d entropy` per response token, or empty.
    pub d_entropies: Vec<f64>,
    /// `d loss / d KL` to the reference policy per response token, or empty.
    pub d_reference_kls: Vec<f64>,
    /// Sums for the metrics.
    pub metrics: LossMetrics,
}

impl From<Gradient> for TokenGradients {
    fn from(gradient: Gradient) -> Self {
        Self {
            loss: gradient.loss,
            d_logprobs: gradient.d_logprobs.iter().map(|&value| value as f32).collect(),
            d_entropies: gradient.d_entropies.iter().map(|&value| value as f32).collect(),
            d_reference_kls: gradient.d_reference_kls,
            metrics: gradient.metrics,
        }
    }
}
