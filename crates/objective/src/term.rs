//! Loss terms other than the surrogate, the KL penalty and the entropy bonus. Other crates add
//! terms with [`crate::Registry::with_term`].

use std::fmt::Debug;
use std::sync::Arc;

use turnwise_core::{Objective, ObjectiveError, RequiredPasses, TurnSpan};

use crate::PolicyObjective;

/// The objective of a term over one optimizer batch.
pub type TermObjective = Box<dyn Objective + Send>;

/// A term of the loss.
pub trait LossTerm: Debug + Send + Sync {
    /// Returns the term's name in configs.
    fn kind(&self) -> &'static str;

    /// Returns the extra model passes, and whether the term scales the gradient.
    fn passes(&self) -> RequiredPasses {
        RequiredPasses::default()
    }

    /// Returns whether tokens with advantage 0 have a gradient.
    fn acts_without_advantage(&self) -> bool {
        false
    }

    /// Returns the KL coefficient to use in place of `coef`.
    fn kl_coef(&self, coef: f64) -> f64 {
        coef
    }

    /// Builds the term over one optimizer batch. The term's loss is added to the policy loss.
    ///
    /// # Errors
    /// Fails on wrong array lengths, NaN and infinity.
    fn for_minibatch(&self, minibatch: &Minibatch<'_>) -> Result<TermObjective, ObjectiveError>;
}

/// The optimizer batch over which a term is built.
#[derive(Clone, Copy, Debug)]
pub struct Minibatch<'a> {
    /// Policy objective ([`PolicyObjective::batch`]).
    pub policy: &'a Arc<PolicyObjective>,
    /// Spans of the responses that are scored after masked prompts, in the learner's order.
    pub masked: &'a [TurnSpan],
}
