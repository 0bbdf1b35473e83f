//! The credit benchmark: the true advantage of every turn, and methods scored against it.
//!
//! The numbers are in the crate [`turnwise_benchmark`], which needs no model; here are the measurements that do.
//!
//! | file | subject |
//! |---|---|
//! | [`files`] | data sets in files |
//! | [`branching`] | the truth by continuations from saved states |
//! | [`tree`] | the truth by counting in many samples of each task, without saved states |
//! | [`gradient`] | the policy gradient of a method's advantages against that of the truth |

pub mod branching;
pub mod files;
pub mod gradient;
pub mod tree;

pub use branching::{BranchProgress, BranchedTask, BranchingSettings, branch_tasks};
pub use files::{read_truth, write_truth};
pub use gradient::{GradientDifference, GradientScore, Gradients};
pub use tree::{TreeSettings, tree_truth};
pub use turnwise_benchmark::{
    Against, Compared, Difference, MethodScore, PartError, ScoreSettings, ScoredTurns, TruthLine,
    TruthSource, TruthSummary, TurnTruth, advantages, score, summarise,
};
