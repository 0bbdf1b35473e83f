//! The credit benchmark: turns with their true advantage, and scores of credit methods against it.
//!
//! A state `s_t` is the environment's state plus the exact tokens that the policy sees.
//! `V(s_t) = E[G | s_t]` and `Q(s_t, a_t) = E[G | s_t, a_t]` are over continuations sampled by the
//! policy, where `G` is the discounted sum of credited rewards. The true advantage is
//! `A*(s_t, a_t) = Q - V`. VinePPO (Kazemnejad et al. 2024, arXiv 2410.01679) trains on such
//! estimates; here they are the ground truth.
//!
//! `turnwise-eval` produces the estimates; this crate needs neither model nor environment.

pub mod bootstrap;
pub mod correlation;
pub mod difference;
pub mod score;
pub mod truth;
pub mod turns;

pub use bootstrap::{Bootstrap, Estimate, Interval, Strata, percentile};
pub use difference::Difference;
pub use score::{
    Against, Compared, MethodScore, PartError, ScoreSettings, TruthSummary, estimate, score, summarise,
};
pub use truth::{TruthLine, TruthSource, TurnTruth};
pub use turns::{Advantages, ScoredTurn, ScoredTurns, advantages};
