//! The credit benchmark: turns with their true advantage, and scores of credit methods against it.
//!
//! Internal to the workspace: nothing here is stable, and the documentation leaves modules out.
//!
//! A state `s_t` is the state of the environment plus the exact tokens that the policy sees. For a
//! policy `pi`, `V(s_t) = E[G | s_t]` and `Q(s_t, a_t) = E[G | s_t, a_t]` over continuations
//! sampled by `pi`, where `G` is the discounted sum of the credited rewards. The true advantage is
//! `A*(s_t, a_t) = Q - V`. VinePPO (Kazemnejad et al. 2024, arXiv 2410.01679) trains on such Monte
//! Carlo estimates; here they are the ground truth.
//!
//! `turnwise-eval` produces the estimates and compares gradients. This crate needs neither a model
//! nor an environment, so the Python package can score methods as well.
//!
//! | file | subject |
//! |---|---|
//! | [`truth`] | a line of the data set: a trajectory with the truth of each turn |
//! | [`turns`] | the turns of a data set as arrays, and a method's advantages for them |
//! | [`mod@score`] | a method's scores: correlations, signs, errors, with intervals over tasks |
//! | [`difference`] | differences between two methods' scores on the same turns |
//! | [`correlation`] | weighted correlations for resampling by task |
//! | [`bootstrap`] | stratified bootstrap, percentile intervals |

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
