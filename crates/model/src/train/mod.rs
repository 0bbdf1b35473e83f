//! Training: the learner on one back-end or the other, and what a run needs besides it.
//!
//! | file | subject |
//! |---|---|
//! | `critic.rs` | a critic |
//! | `learner/` | the native learner |
//! | `micro.rs` | one micro-batch of a lane |
//! | `pass_over.rs` | what all micro-batches of a pass share |
//! | `schedule.rs` | learning rates over the steps of a run |

mod critic;
#[cfg(test)]
mod golden_tests;
mod learner;
mod micro;
mod pass_over;
mod schedule;

pub use critic::Critic;
pub use learner::{LearnerConfig, NativeLearner, TakenGradient};
pub use schedule::{Schedule, ScheduleKind};
