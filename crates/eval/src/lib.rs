//! Evaluation on pinned task panels, comparison of runs, analyses of a checkpoint, and the credit
//! benchmark.
//!
//! Internal to the workspace: nothing here is stable, and the modules are hidden from the
//! documentation.
//!
//! ```
//! // 8 of 10: Wilson's 95 % interval.
//! let (low, high) = turnwise_eval::wilson(8, 10);
//! assert!((low - 0.490).abs() < 1e-3 && (high - 0.943).abs() < 1e-3);
//! ```

mod agent;
#[doc(hidden)]
pub mod analysis;
#[doc(hidden)]
pub mod benchmark;
#[doc(hidden)]
pub mod compare;
mod evaluate;
mod interval;
mod outcomes;
mod ranking;
mod reflexion;
#[doc(hidden)]
pub mod statistics;

pub use agent::Agent;
pub use evaluate::{EvalError, Evaluation, KindResult, PlaySettings, TrialResult, evaluate, evaluate_with};
pub use interval::{Rate, wilson};
pub use outcomes::{Outcomes, TaskOutcome};
pub use ranking::roc_auc;
