//! Issues of real repositories: instances of SWE-bench and R2E-Gym in containers.
//!
//! The tools are those of [`crate::coding`]; they act inside a container. `submit` takes the diff of
//! the repository, applies it in a fresh container and runs the instance's tests there.
//!
//! | file | subject |
//! |---|---|
//! | `engine/` | containers by docker, podman, apptainer, or an image folder in the sandbox |
//! | `instance.rs`, `records.rs` | instances, and the files that hold them |
//! | `patch.rs` | unified diffs |
//! | `logs.rs`, `grade.rs` | statuses of tests in logs, and the decision |
//! | `repository.rs` | operations on the repository in a container |

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
