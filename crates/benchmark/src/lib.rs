//! The credit benchmark's numbers: turns with their true advantage, and methods scored against it.
//!
//! With a policy `pi` and a state `s_t` (the world's state and the exact tokens that the policy sees in it), `V(s_t) = E[G | s_t]` and
//! `Q(s_t, a_t) = E[G | s_t, a_t]` over continuations that `pi` samples, `G` being the discounted sum of the rewards that credit is
//! assigned from, and the true advantage is `A*(s_t, a_t) = Q - V`. VinePPO (Kazemnejad et al. 2024, arXiv 2410.01679) trains on such
//! estimates; here they are what credit methods are compared with. `turnwise-eval` measures them and compares gradients; this crate
//! needs neither a model nor an environment, so that the Python package scores methods, too.
//!
//! | file | subject |
//! |---|---|
//! | [`truth`] | a line of the data set: a played trajectory with the truth of every turn |
//! | [`turns`] | the turns of a data set as lists of numbers, and the advantages of a method on them |
//! | [`mod@score`] | a method's advantages against the truth: correlations, signs, errors, with intervals over tasks |
//! | [`difference`] | one method's score less another's on the same turns |
//! | [`correlation`] | weighted correlations of turns that are drawn by task |
//! | [`bootstrap`] | stratified bootstrap, percentile intervals |

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
