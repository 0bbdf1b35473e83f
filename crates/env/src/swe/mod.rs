//! Issues of real repositories: SWE-bench and R2E-Gym instances in containers.
//!
//! The agent has the same tools as in [`crate::coding`]. The tool `submit` applies the agent's diff
//! in a fresh container and runs the instance's tests there.

mod engine;
mod environment;
mod expert;
mod grade;
mod instance;
mod logs;
mod patch;
mod records;
mod repository;
mod set;
#[cfg(test)]
mod tests;
mod world;

pub use engine::{Engine, SweContainer, SweLimits};
pub use environment::SweEnv;
pub use instance::{SweInstance, SweTests};
pub use logs::LogFormat;
pub use set::SweTasks;
pub use world::{SweKind, SweSettings, SweWorld};
