//! Extra model passes that a loss needs. The training loop runs them without knowing the method.
//!
//! For each update, the loop runs the [`RequiredPasses`], the loss builds an [`Objective`] per
//! minibatch, and the learner runs forward and backward. The objective may then scale the gradient,
//! after a [`SecondPass`] if the factor depends on another gradient's norm.

use serde::{Deserialize, Serialize};

use crate::{Objective, ObjectiveError};

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

/// A pass over the responses of selected turns with part of their prompts hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskedContextPass {
    /// The hidden part.
    pub mask: ContextMask,
    /// Whether full-vocabulary divergences between the two prompts are needed.
    pub divergences: bool,
    /// Whether the reference policy also runs on the masked prompt.
    pub reference: bool,
    /// Whether no gradient flows through the masked prompt's distribution in
    /// [`crate::MaskedContextStatistics::kl`].
    pub detached: bool,
}

/// What a loss does with the accumulated gradient after the backward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GradientPass {
    /// Nothing.
    #[default]
    Plain,
    /// Multiplies it by [`Objective::gradient_scale`].
    Scaled,
    /// Runs [`Objective::second_pass`] with a separate gradient, and multiplies the first gradient
    /// by a factor that depends on the second one's norm.
    ScaledByNorm,
}

/// Extra model passes of one training step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequiredPasses {
    /// Reference log-probs of the response tokens before credit assignment, for a KL penalty in the
    /// reward.
    pub reward_reference_logprobs: bool,
    /// Reference log-probs of the response tokens, for the loss.
    pub reference_logprobs: bool,
    /// Full-vocabulary KLs to the reference policy, with a gradient.
    pub reference_kls: bool,
    /// Full-vocabulary entropies, with a gradient.
    pub entropies: bool,
    /// A masked-context pass over the selected turns.
    pub masked_context: Option<MaskedContextPass>,
    /// What the loss does with the accumulated gradient.
    pub gradient: GradientPass,
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

    /// Combines the passes of two parts of a loss.
    ///
    /// # Errors
    /// Fails if both have a masked-context pass, because a step builds one masked prompt per turn,
    /// or if both scale the gradient.
    pub fn and(self, other: Self) -> Result<Self, ObjectiveError> {
        let masked_context = match (self.masked_context, other.masked_context) {
            (Some(_), Some(_)) => {
                let reason = "two terms ask for a masked-context pass, and a step makes one masked prompt per turn; \
                              use one of them";
                return Err(ObjectiveError::Setting(reason.into()));
            }
            (own, other) => own.or(other),
        };
        let gradient = match (self.gradient, other.gradient) {
            (own, GradientPass::Plain) => own,
            (GradientPass::Plain, other) => other,
            _ => {
                let reason = "two terms scale the gradient; use one of them";
                return Err(ObjectiveError::Setting(reason.into()));
            }
        };
        Ok(Self {
            reward_reference_logprobs: self.reward_reference_logprobs || other.reward_reference_logprobs,
            reference_logprobs: self.reference_logprobs || other.reference_logprobs,
            reference_kls: self.reference_kls || other.reference_kls,
            entropies: self.entropies || other.entropies,
            masked_context,
            gradient,
        })
    }
}

/// A second forward and backward pass over some sequences of a minibatch.
pub struct SecondPass<'a> {
    /// Indices of the sequences in the minibatch.
    pub sequences: Vec<usize>,
    /// Objective of the pass: its sequence `i` is the minibatch's sequence `sequences[i]`.
    pub objective: Box<dyn Objective + 'a>,
}

/// A factor on a gradient, with metrics that explain it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GradientScale {
    /// The factor.
    pub factor: f64,
    /// Metrics by name; a step records their mean over its updates.
    pub metrics: Vec<(String, f64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_add_up_and_there_is_one_masked_context_and_one_scaling() {
        let masked = RequiredPasses {
            masked_context: Some(MaskedContextPass {
                mask: ContextMask::Goal,
                divergences: false,
                reference: true,
                detached: false,
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
        let scaled = RequiredPasses { gradient: GradientPass::Scaled, ..RequiredPasses::default() };
        assert_eq!(entropies.and(scaled).unwrap().gradient, GradientPass::Scaled);
        assert_eq!(scaled.and(entropies).unwrap().gradient, GradientPass::Scaled);
        let error = scaled.and(scaled).unwrap_err();
        assert!(error.to_string().contains("two terms scale the gradient"), "{error}");
    }
}
