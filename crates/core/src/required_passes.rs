//! Extra model passes that a loss needs. The training loop runs them without knowing the method.
//!
//! Each update has the same order. The loss declares its [`RequiredPasses`], and the loop runs them. The
//! loss builds a [`MinibatchObjective`] for each minibatch, and the learner runs forward and
//! backward. With a [`GradientScaling`], the loop then runs a second pass and scales the gradient
//! before the optimizer step.

use serde::{Deserialize, Serialize};

use crate::{MaskedContextObjective, Objective, ObjectiveError};

/// Part of a turn's prompt that a masked-context pass hides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub enum ContextMask {
    /// The goal and the history.
    #[default]
    #[serde(rename = "goal+history")]
    GoalAndHistory,
    /// The goal.
    #[serde(rename = "goal")]
    Goal,
    /// The history.
    #[serde(rename = "history")]
    History,
}

/// A pass over the responses of selected turns, each after a prompt with part of its context
/// hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskedContextPass {
    /// The hidden part.
    pub mask: ContextMask,
    /// Whether full-vocabulary divergences between the two prompts are needed.
    pub divergences: bool,
    /// Whether the reference policy is also run after the masked prompt.
    pub reference: bool,
}

/// Extra model passes of one training step. The default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequiredPasses {
    /// Log-probs of the response tokens under the reference policy before credit assignment, for a
    /// KL penalty in the reward.
    pub reward_reference_logprobs: bool,
    /// Log-probs of the response tokens under the reference policy, for the loss.
    pub reference_logprobs: bool,
    /// Full-vocabulary KLs to the reference policy, with a gradient.
    pub reference_kls: bool,
    /// Full-vocabulary entropies, with a gradient.
    pub entropies: bool,
    /// A masked-context pass over the selected turns.
    pub masked_context: Option<MaskedContextPass>,
    /// A second backward pass, whose gradient is kept apart from the first.
    pub bias_gradient: bool,
}

impl RequiredPasses {
    /// Returns true if any pass runs the reference policy.
    pub fn needs_reference(&self) -> bool {
        self.reward_reference_logprobs
            || self.reference_logprobs
            || self.reference_kls
            || self.masked_context.is_some_and(|pass| pass.reference)
    }

    /// Returns true if the learner must compare full distributions, not only sampled tokens.
    pub fn needs_divergences(&self) -> bool {
        self.reference_kls || self.masked_context.is_some_and(|pass| pass.divergences)
    }

    /// Returns the passes of both parts of a loss.
    ///
    /// # Errors
    /// Fails for two masked-context passes: a step makes one masked prompt per turn.
    pub fn and(self, other: Self) -> Result<Self, ObjectiveError> {
        let masked_context = match (self.masked_context, other.masked_context) {
            (Some(_), Some(_)) => {
                let reason = "two terms ask for a masked-context pass, and a step makes one masked prompt per turn; \
                              use one of them";
                return Err(ObjectiveError::Setting(reason.into()));
            }
            (own, other) => own.or(other),
        };
        Ok(Self {
            reward_reference_logprobs: self.reward_reference_logprobs || other.reward_reference_logprobs,
            reference_logprobs: self.reference_logprobs || other.reference_logprobs,
            reference_kls: self.reference_kls || other.reference_kls,
            entropies: self.entropies || other.entropies,
            masked_context,
            bias_gradient: self.bias_gradient || other.bias_gradient,
        })
    }
}

/// Loss of one minibatch with everything that belongs to its update.
pub trait MinibatchObjective {
    /// Returns the loss over response tokens.
    fn tokens(&self) -> &dyn Objective;

    /// Returns the loss over masked contexts, if there is one.
    fn masked_context(&self) -> Option<&dyn MaskedContextObjective> {
        None
    }

    /// Returns the factor on the gradient, if it depends on the backward pass.
    fn gradient_scaling(&self) -> Option<&dyn GradientScaling> {
        None
    }
}

/// A factor on the accumulated gradient of a minibatch that is decided after its backward pass.
pub trait GradientScaling {
    /// Returns the second pass that is needed now, if any. Only the L2 norm of its gradient is
    /// used, in [`GradientScaling::scale`].
    ///
    /// # Errors
    /// Fails if numbers of the first pass are missing.
    fn second_pass(&self) -> Result<Option<SecondPass<'_>>, ObjectiveError>;

    /// Returns the factor, given the gradient norm of the second pass if there was one.
    ///
    /// # Errors
    /// Fails on an invalid setting, or a NaN norm.
    fn scale(&self, second_norm: Option<f64>) -> Result<GradientScale, ObjectiveError>;
}

/// Second forward and backward pass over some sequences of a minibatch.
pub struct SecondPass<'a> {
    /// Indices of the sequences in the minibatch.
    pub sequences: Vec<usize>,
    /// The objective over them: its sequence `i` is `sequences[i]` of the minibatch.
    pub objective: Box<dyn Objective + 'a>,
}

/// A factor on a gradient, with metrics that explain it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GradientScale {
    /// The factor.
    pub factor: f64,
    /// Metrics by name; their mean over the updates of a step is recorded.
    pub metrics: Vec<(String, f64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_add_up_and_there_is_one_masked_context() {
        let masked = RequiredPasses {
            masked_context: Some(MaskedContextPass {
                mask: ContextMask::Goal,
                divergences: false,
                reference: true,
            }),
            ..RequiredPasses::default()
        };
        let entropies = RequiredPasses { entropies: true, ..RequiredPasses::default() };
        let both = masked.and(entropies).unwrap();
        assert!(both.entropies && both.needs_reference() && !both.needs_divergences());
        assert_eq!(RequiredPasses::default().and(entropies).unwrap(), entropies);
        assert!(!entropies.needs_reference());
        let error = masked.and(masked).unwrap_err();
        assert!(error.to_string().contains("use one of them"), "{error}");
    }
}
