//! Sends a loss by its derivatives, for services that only support linear losses.
//!
//! Let `L` be a loss, `g_t = dL / d lp_t` at the current weights, and `p_t` the log-probs of a
//! forward pass. The service's `importance_sampling` with weights `m_t` (1 at response tokens), old
//! log-probs `p_t` and advantages `-c g_t` is `sum_t m_t c g_t exp(lp_t - p_t)` before its
//! reduction. At `lp = p`, its gradient is `c sum_t g_t d lp_t`, and `c` ([`Reduction::factor`])
//! undoes the reduction. `cross_entropy` with weights `-g_t` would work only on a service that
//! sums. A service that divides by the sum of weights could divide by a negative number.

use turnwise_core::TokenSequence;

use super::example::{Example, spread};
use super::reduction::Reduction;

/// One sequence of an update that has not been sent.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    sequence: TokenSequence,
    /// Log-probs of all targets, from the forward pass.
    logprobs: Vec<f32>,
    /// `g_t`, one per response token.
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

/// Returns the examples of an update. Sequences without a gradient are left out.
pub(crate) fn examples(pending: &[Pending], reduction: Reduction) -> Vec<Example> {
    let acting: Vec<&Pending> =
        pending.iter().filter(|pending| pending.slopes.iter().any(|slope| *slope != 0.0)).collect();
    acting.iter().map(|pending| pending.example(reduction, acting.len())).collect()
}
