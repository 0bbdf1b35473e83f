//! Loss terms other than the clipped surrogate, the KL penalty and the entropy bonus.
//!
//! A term is one file with its settings, equation and [`LossTerm`]. [`crate::registry`] registers
//! terms for configs; other crates use [`crate::Registry::with_term`].

use std::fmt::Debug;
use std::sync::Arc;

use turnwise_core::{Objective, ObjectiveError, RequiredPasses, TurnSpan};

use crate::PolicyObjective;

/// A term over one optimizer batch.
pub type TermObjective = Box<dyn Objective + Send>;

/// A term of the loss.
pub trait LossTerm: Debug + Send + Sync {
    /// Returns the term's config name.
    fn kind(&self) -> &'static str;

    /// Returns the extra model passes that it needs, and whether it scales the gradient.
    fn passes(&self) -> RequiredPasses {
        RequiredPasses::default()
    }

    /// Returns true if the term has a gradient at tokens with advantage 0.
    fn acts_without_advantage(&self) -> bool {
        false
    }

    /// Returns the effective KL coefficient with this term.
    fn kl_coef(&self, coef: f64) -> f64 {
        coef
    }

    /// Builds the term over one optimizer batch. Its loss is added to the policy's. Only
    /// [`LossTerm::passes`] declares its passes.
    ///
    /// # Errors
    /// Fails on arrays of mismatched length, NaN and infinity.
    fn for_minibatch(&self, minibatch: &Minibatch<'_>) -> Result<TermObjective, ObjectiveError>;
}

/// The optimizer batch that a term is built for.
#[derive(Clone, Copy, Debug)]
pub struct Minibatch<'a> {
    /// The policy objective over the batch ([`PolicyObjective::batch`]).
    pub policy: &'a Arc<PolicyObjective>,
    /// Spans of the responses to run after masked prompts, in the learner's order.
    pub masked: &'a [TurnSpan],
}
