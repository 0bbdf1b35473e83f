//! The credit benchmark: measures the true advantage of every turn, and scores methods against it.
//!
//! The crate [`turnwise_benchmark`] computes the scores, which need no model; this module measures,
//! which needs one.

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
