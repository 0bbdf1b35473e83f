//! Evaluation: success on pinned task panels, with intervals, and the comparison of runs.

mod agent;
pub mod compare;
mod evaluate;
mod interval;
mod outcomes;
mod ranking;
mod reflexion;
pub mod statistics;

pub use agent::Agent;
pub use evaluate::{
    EvalError, Evaluation, EvaluationSettings, KindResult, PlaySettings, TrialResult, evaluate, evaluate_with,
};
pub use interval::{Rate, wilson};
pub use outcomes::{Outcomes, TaskOutcome};
pub use ranking::roc_auc;
