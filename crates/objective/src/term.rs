//! Loss terms besides the clipped surrogate, the KL penalty and the entropy bonus.
//!
//! A term is one file with its settings, its equation and its [`LossTerm`]. One line in
//! [`crate::registry`] registers it for configs; other crates use [`crate::Registry::with_term`].

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

    /// Returns true if the term needs the turns that credit selects (`credit.outliers`).
    fn needs_selected_turns(&self) -> bool {
        self.passes().masked_context.is_some()
    }

    /// Returns true if tokens with advantage 0 have a gradient from this term.
    fn acts_without_advantage(&self) -> bool {
        false
    }

    /// Returns true if the term provides [`TermParts::scaling`]. A loss has at most one such term.
    fn scales_gradient(&self) -> bool {
        false
    }

    /// Returns the KL coefficient that is used with this term.
    fn kl_coef(&self, coef: f64) -> f64 {
        coef
    }

    /// Builds the parts of the term over one optimizer batch.
    ///
    /// # Errors
    /// Fails on arrays that do not fit together, NaN and infinity.
    fn for_minibatch(&self, minibatch: &Minibatch<'_>) -> Result<TermParts, ObjectiveError>;
}

/// The optimizer batch that a term is built for.
#[derive(Clone, Copy, Debug)]
pub struct Minibatch<'a> {
    /// The policy objective over it, with the numbers of each sequence
    /// ([`PolicyObjective::batch`]).
    pub policy: &'a Arc<PolicyObjective>,
    /// Responses of selected turns that are also run after a masked prompt, in the learner's order.
    pub masked: &'a [TurnSpan],
}

/// Parts of a term; each may be absent.
#[derive(Default)]
pub struct TermParts {
    /// A loss over response tokens, added to the policy's.
    pub tokens: Option<Box<dyn Objective + Send>>,
    /// A loss over turns after masked prompts.
    pub masked_context: Option<Box<dyn MaskedContextObjective + Send>>,
    /// A factor on the gradient.
    pub scaling: Option<Box<dyn ObservedScaling>>,
}

/// Gradient scaling that observes the backward pass.
pub trait ObservedScaling: GradientScaling + Send + Sync {
    /// Observes the numbers of one sequence, in any order and on any thread.
    ///
    /// # Errors
    /// Fails on wrong lengths, and on NaN or infinity at a token that counts.
    fn observe(&self, sequence: usize, tokens: TokenStatistics<'_>) -> Result<(), ObjectiveError>;
}
