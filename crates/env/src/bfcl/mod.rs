//! BFCL's multi-turn tasks: the model fulfils user requests by calling functions of eight stateful
//! APIs.
//!
//! | file | subject |
//! |---|---|
//! | `apis/`, `session` | the eight APIs and their methods |
//! | `package`, `long_context.rs` | tasks and documents from the `bfcl-eval` package |
//! | `generator/` | generated tasks |
//! | `grade.rs` | comparison with the gold calls |
//! | `reply.rs`, `document.rs` | the model's replies and the function documents |
//! | `set`, `environment`, `expert`, `world` | the environment |
//! | [`mod@replay`] | comparison with recorded episodes of the original |

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
