//! Measures the true advantage of every turn; [`turnwise_benchmark`] scores methods against it.

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
