//! Evaluation: success on pinned task panels, with intervals.

mod agent;
mod evaluate;
mod interval;
mod ranking;
mod reflexion;

pub use agent::Agent;
pub use evaluate::{
    EvalError, Evaluation, EvaluationSettings, KindResult, PlaySettings, TrialResult, evaluate, evaluate_with,
};
pub use interval::{Rate, wilson};
pub use ranking::roc_auc;
