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
