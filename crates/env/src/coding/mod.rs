//! Coding tasks: fix a defect in a small repository. Hidden checks decide whether the defect is
//! fixed.
//!
//! Only the tool `run` and the hidden checks execute code, in a sandbox (crate `turnwise-sandbox`,
//! ADR 42). An episode's files are kept in memory and are part of its saved state.

pub(crate) mod calls;
mod data;
mod environment;
mod expert;
mod generator;
mod language;
mod library;
mod mutation;
mod repository;
mod rust;
mod set;
mod task;
#[cfg(test)]
mod tests;
pub(crate) mod tools;
mod workshop;
mod world;

pub use environment::CodingEnv;
pub use generator::CodingGenerator;
pub use language::Language;
pub(crate) use repository::{Content, check_path, cut, findings, listed};
pub use repository::{Place, Repository};
pub use set::CodingTasks;
pub use task::{Check, CodingTask};
pub use workshop::{CodingLimits, Job, Workshop};
pub(crate) use workshop::{NUL, shown};
pub use world::{CodingExpert, CodingKind, CodingSettings, CodingWorld};
