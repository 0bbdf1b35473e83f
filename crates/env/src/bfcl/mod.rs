//! BFCL's multi-turn tasks: a user's requests are fulfilled by calling functions of eight stateful APIs.
//!
//! | file | subject |
//! |---|---|
//! | `python/` | Python values, operators and expressions as far as the APIs need them |
//! | `method.rs` | parameters of methods, and the binding of arguments |
//! | `apis/` | the eight APIs |
//! | `session` | the APIs of one task, and textual calls of them |
//! | `long_context.rs` | padding in the set `long_context` |
//! | `generator/` | generated tasks |
//! | `package` | tasks, gold calls and documents from the package `bfcl-eval` |
//! | `grade.rs` | comparison with the gold calls |
//! | `reply.rs`, `document.rs` | replies of the model, and descriptions of the functions |
//! | `set`, `environment`, `expert`, `world` | the environment |
//! | [`mod@replay`] | comparison with recorded episodes of the original |

pub mod apis;
mod document;
mod environment;
#[cfg(test)]
mod environment_tests;
mod expert;
mod generator;
pub mod grade;
mod long_context;
mod method;
pub mod package;
pub mod python;
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
