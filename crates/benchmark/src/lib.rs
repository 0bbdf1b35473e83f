//! The credit benchmark: turns with their true advantage, and scores of credit methods against it.
//!
//! Internal to the workspace: nothing here is stable, and the modules are hidden from the
//! documentation.
//!
//! A state `s_t` is the environment's state plus the exact tokens that the policy sees.
//! `V(s_t) = E[G | s_t]` and `Q(s_t, a_t) = E[G | s_t, a_t]` are expectations over continuations
//! sampled by the policy, where `G` is the discounted sum of the rewards that credit assignment
//! uses. The true advantage is `A*(s_t, a_t) = Q - V`. VinePPO (Kazemnejad et al. 2024, arXiv
//! 2410.01679) trains on estimates of `A*`; the benchmark uses them as ground truth.
//!
//! The crate `turnwise-eval` estimates `A*`; this crate needs neither a model nor an environment.

#[doc(hidden)]
pub mod bootstrap;
#[doc(hidden)]
pub mod correlation;
#[doc(hidden)]
pub mod difference;
#[doc(hidden)]
pub mod score;
#[doc(hidden)]
pub mod truth;
#[doc(hidden)]
pub mod turns;

pub use bootstrap::{Bootstrap, Estimate, Interval, Strata, percentile};
pub use difference::Difference;
pub use score::{
    Against, Compared, MethodScore, PartError, ScoreSettings, TruthSummary, estimate, score, summarise,
};
pub use truth::{TruthLine, TruthSource, TurnTruth};
pub use turns::{Advantages, ScoredTurn, ScoredTurns, advantages};
