//! The credit benchmark: the true advantage of every turn, and methods scored against it.
//!
//! With a policy `pi` and a state `s_t` (the world's state and the exact tokens that the policy sees in it), `V(s_t) = E[G | s_t]` and
//! `Q(s_t, a_t) = E[G | s_t, a_t]` over continuations that `pi` samples, `G` being the discounted sum of the rewards that credit is
//! assigned from, and the true advantage is `A*(s_t, a_t) = Q - V`. VinePPO (Kazemnejad et al. 2024, arXiv 2410.01679) trains on such
//! estimates; here they are what credit methods are compared with.
//!
//! | file | subject |
//! |---|---|
//! | [`truth`] | the data set: played trajectories with the truth of every turn, in files |
//! | [`branching`] | the truth by continuations from saved states |
//! | [`tree`] | the truth by counting in many samples of each task, without saved states |
//! | [`turns`] | the turns of a data set as lists of numbers, and the advantages of a method on them |
//! | [`mod@score`] | a method's advantages against the truth: correlations, signs, errors, with intervals over tasks |
//! | [`gradient`] | the policy gradient of a method's advantages against that of the truth |
//! | [`correlation`] | weighted correlations of turns that are drawn by task |

pub mod branching;
pub mod correlation;
pub mod gradient;
pub mod score;
pub mod tree;
pub mod truth;
pub mod turns;

pub use branching::{BranchProgress, BranchedTask, BranchingSettings, branch_tasks};
pub use gradient::{GradientScore, Gradients};
pub use score::{Against, MethodScore, PartError, ScoreSettings, TruthSummary, score, summarise};
pub use tree::{TreeSettings, tree_truth};
pub use truth::{TruthLine, TruthSource, TurnTruth, read_truth, write_truth};
pub use turns::{Advantages, ScoredTurns, advantages};
