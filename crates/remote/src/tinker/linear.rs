//! Sends any loss as a linear loss with the same gradient.
//!
//! Let `L` be the loss, `lp_t` the log-prob of token `t`, `g_t = dL / d lp_t`, and `p_t` the
//! log-prob from a forward pass. The factor `c` ([`Reduction::factor`]) undoes the service's
//! reduction. With weights `m_t` (1 at response tokens), old log-probs `p_t` and advantages
//! `-c g_t`, the service's `importance_sampling` loss before its reduction is
//! `sum_t m_t c g_t exp(lp_t - p_t)`. At `lp_t = p_t`, the gradient of this loss is
//! `c sum_t g_t d lp_t`. The simpler `cross_entropy` with weights `-g_t` would fail on services
//! that divide by the sum of the weights, because this sum may be negative.

use turnwise_core::TokenSequence;

use super::example::{Example, spread};
use super::reduction::Reduction;

/// A sequence not sent yet.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    sequence: TokenSequence,
    logprobs: Vec<f32>,
    /// `g_t` per response token.
    slopes: Vec<f32>,
}

impl Pending {
    pub(crate) fn new(sequence: &TokenSequence, logprobs: Vec<f32>, slopes: Vec<f32>) -> Self {
        Self { sequence: sequence.clone(), logprobs, slopes }
    }

    pub(crate) fn scale(&mut self, factor: f64) {
        self.slopes.iter_mut().for_each(|slope| *slope = (f64::from(*slope) * factor) as f32);
    }

    fn example(&self, reduction: Reduction, sequences: usize) -> Example {
        let mut example = Example::of(&self.sequence);
        let factor = -reduction.factor(example.counted(), sequences);
        let advantages = self.slopes.iter().map(|slope| (f64::from(*slope) * factor) as f32);
        example.advantages = Some(spread(&self.sequence, advantages));
        example.logprobs = Some(self.logprobs.clone());
        example
    }
}

/// Returns an update's examples, omitting sequences whose gradient is zero.
pub(crate) fn examples(pending: &[Pending], reduction: Reduction) -> Vec<Example> {
    let acting: Vec<&Pending> =
        pending.iter().filter(|pending| pending.slopes.iter().any(|slope| *slope != 0.0)).collect();
    acting.iter().map(|pending| pending.example(reduction, acting.len())).collect()
}
