//! Evaluation: success on pinned task panels, with intervals.

mod evaluate;
mod interval;
mod ranking;

pub use evaluate::{EvalError, Evaluation, EvaluationSettings, KindResult, evaluate};
pub use interval::{Rate, wilson};
pub use ranking::roc_auc;
