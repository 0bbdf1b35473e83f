//! Evaluation: success on pinned task panels, with intervals.

mod evaluate;
mod interval;

pub use evaluate::{EvalError, Evaluation, EvaluationSettings, KindResult, evaluate};
pub use interval::{Rate, wilson};
