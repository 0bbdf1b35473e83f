//! BFCL's multi-turn tasks: requests of a user that are met by calling functions of eight APIs with states.
//!
//! | File | Subject |
//! |---|---|
//! | `python/` | what the APIs need of Python: values, texts, operators, expressions |
//! | `method.rs` | parameters of methods, and how arguments are matched with them |
//! | `apis/` | the eight APIs |
//! | `session` | the APIs of one task, and calls of them as text |
//! | `long_context.rs` | what the set `long_context` pads states and results with |
//! | `generator/` | tasks of the project's own in the same APIs |
//! | `package` | tasks, gold calls and documents in the user's copy of the package `bfcl-eval` |
//! | `grade.rs` | states and results against those of the gold calls |
//! | `reply.rs`, `document.rs` | what a model writes, and what it reads about the functions |
//! | `set`, `environment`, `expert`, `world` | the world |
//! | [`mod@replay`] | recorded plays of the original against these APIs |

pub mod apis;
mod document;
mod environment;
#[cfg(test)]
mod environment_tests;
mod expert;
mod generator;
pub mod grade;
mod long_context;
pub(crate) mod method;
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
