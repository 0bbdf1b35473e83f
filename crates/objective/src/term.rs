//! Loss terms other than the clipped surrogate, the KL penalty and the entropy bonus.
//!
//! A term is one file with its settings, equation and [`LossTerm`]. [`crate::registry`] registers
//! terms for configs; other crates use [`crate::Registry::with_term`].

use std::fmt::Debug;
use std::sync::Arc;

use turnwise_core::{
    GradientScaling, MaskedContextObjective, Objective, ObjectiveError, RequiredPasses, TokenStatistics,
    TurnSpan,
};

use crate::PolicyObjective;

/// A term of the loss.
pub trait LossTerm: Debug + Send + Sync {
    /// Returns the term's config name.
    fn kind(&self) -> &'static str;

    /// Returns the extra model passes that it needs.
    fn passes(&self) -> RequiredPasses {
        RequiredPasses::default()
    }

    /// Returns true if the term needs the outlier turns that credit selects (`credit.outliers`).
    fn needs_selected_turns(&self) -> bool {
        self.passes().masked_context.is_some()
    }

    /// Returns true if the term has a gradient at tokens with advantage 0.
    fn acts_without_advantage(&self) -> bool {
        false
    }

    /// Returns true if the term provides [`TermParts::scaling`]. A loss has at most one such term.
    fn scales_gradient(&self) -> bool {
        false
    }

    /// Returns the effective KL coefficient with this term.
    fn kl_coef(&self, coef: f64) -> f64 {
        coef
    }

    /// Builds the parts of the term over one optimizer batch.
    ///
    /// # Errors
    /// Fails on arrays of mismatched length, NaN and infinity.
    fn for_minibatch(&self, minibatch: &Minibatch<'_>) -> Result<TermParts, ObjectiveError>;
}

/// The optimizer batch that a term is built for.
#[derive(Clone, Copy, Debug)]
pub struct Minibatch<'a> {
    /// The policy objective over the batch ([`PolicyObjective::batch`]).
    pub policy: &'a Arc<PolicyObjective>,
    /// Spans of the responses to run after masked prompts, in the learner's order.
    pub masked: &'a [TurnSpan],
}

/// Parts of a term; each may be absent.
#[derive(Default)]
pub struct TermParts {
    /// A loss over response tokens, added to the policy's loss.
    pub tokens: Option<Box<dyn Objective + Send>>,
    /// A loss over masked contexts.
    pub masked_context: Option<Box<dyn MaskedContextObjective + Send>>,
    /// A factor on the gradient.
    pub scaling: Option<Box<dyn ObservedScaling>>,
}

/// Gradient scaling that observes the backward pass.
pub trait ObservedScaling: GradientScaling + Send + Sync {
    /// Observes one sequence's numbers, in any order and on any thread.
    ///
    /// # Errors
    /// Fails on wrong lengths, and on NaN or infinity at an unmasked token.
    fn observe(&self, sequence: usize, tokens: TokenStatistics<'_>) -> Result<(), ObjectiveError>;
}
