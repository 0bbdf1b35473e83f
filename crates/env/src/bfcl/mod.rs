//! BFCL's multi-turn tasks: the model fulfils user requests with the functions of eight stateful
//! APIs.

pub mod apis;
mod document;
mod environment;
#[cfg(test)]
mod environment_tests;
mod expert;
mod generator;
pub(crate) mod grade;
mod long_context;
pub mod package;
pub mod replay;
pub mod reply;
pub mod session;
mod set;
mod world;

pub use document::BfclDocuments;
pub use environment::BfclEnv;
pub use generator::{BfclGenerator, BfclLevel};
pub use long_context::LongContext;
pub use set::{BfclOptions, BfclTasks};
pub use world::{BfclExpert, BfclKind, BfclSettings, BfclWorld};
