//! Extra model passes that a loss requests, so that the training loop does not depend on the
//! method.
//!
//! For each update, the loop runs the [`RequiredPasses`], the loss builds an [`Objective`] per
//! minibatch, and the learner evaluates it. The objective may then scale the gradient by a factor
//! that may need a [`SecondPass`].

use serde::{Deserialize, Serialize};

use crate::{Objective, ObjectiveError};

/// The part of a turn's prompt to hide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub enum ContextMask {
    /// Goal and history.
    #[default]
    #[serde(rename = "goal+history")]
    GoalAndHistory,
    /// Goal only.
    #[serde(rename = "goal")]
    Goal,
    /// History only.
    #[serde(rename = "history")]
    History,
}

/// Second pass over selected turns, with part of the prompt hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskedContextPass {
    /// The hidden part.
    pub mask: ContextMask,
    /// Whether to compute full-vocabulary divergences.
    pub divergences: bool,
    /// Whether the reference policy also runs on the masked prompt.
    pub reference: bool,
    /// Whether to treat the masked prompt's distribution as constant in the gradient of
    /// [`crate::MaskedContextStatistics::kl`].
    pub detached: bool,
}

/// What happens to the accumulated gradient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GradientPass {
    /// Nothing.
    #[default]
    Plain,
    /// The gradient is multiplied by [`Objective::gradient_scale`].
    Scaled,
    /// The gradient is multiplied by a factor that needs the gradient norm of
    /// [`Objective::second_pass`].
    ScaledByNorm,
}

/// Extra model passes of one training step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequiredPasses {
    /// Reference log-probs for a KL penalty in the reward.
    pub reward_reference_logprobs: bool,
    /// Reference log-probs for the loss.
    pub reference_logprobs: bool,
    /// Full-vocabulary KLs to the reference policy, with a gradient.
    pub reference_kls: bool,
    /// Full-vocabulary entropies, with a gradient.
    pub entropies: bool,
    /// Masked-context pass over the selected turns.
    pub masked_context: Option<MaskedContextPass>,
    /// What happens to the accumulated gradient.
    pub gradient: GradientPass,
}

impl RequiredPasses {
    /// Returns true if the reference policy must run.
    pub fn needs_reference(&self) -> bool {
        self.reward_reference_logprobs
            || self.reference_logprobs
            || self.reference_kls
            || self.masked_context.is_some_and(|pass| pass.reference)
    }

    /// Returns true if any pass must compute full-vocabulary KLs.
    pub fn needs_divergences(&self) -> bool {
        self.reference_kls || self.masked_context.is_some_and(|pass| pass.divergences)
    }

    /// Combines two requirements.
    ///
    /// # Errors
    /// Fails if the two requirements both have a masked-context pass, or both scale the gradient.
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

/// Second pass over some sequences of a minibatch.
pub struct SecondPass<'a> {
    /// Sequence indices in the minibatch.
    pub sequences: Vec<usize>,
    /// Objective of this pass; its sequence `i` is sequence `sequences[i]` of the minibatch.
    pub objective: Box<dyn Objective + 'a>,
}

/// A factor on a gradient, with explanatory metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GradientScale {
    /// The factor.
    pub factor: f64,
    /// Metrics by name, averaged over a step's updates.
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
