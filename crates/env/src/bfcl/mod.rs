//! BFCL's multi-turn tasks: requests of a user that are met by calling functions of eight APIs with states.
//!
//! | File | Subject |
//! |---|---|
//! | `python/` | what the APIs need of Python: values, texts, operators, expressions |
//! | `method.rs` | parameters of methods, and how arguments are matched with them |
//! | `apis/` | the eight APIs |
//! | `session` | the APIs of one task, and calls of them as text |
//! | `long_context.rs` | what the set `long_context` pads states and results with |
//! | `package` | tasks, gold calls and documents in the user's copy of the package `bfcl-eval` |
//! | [`mod@replay`] | recorded plays of the original against these APIs |

pub mod apis;
mod long_context;
mod method;
pub mod package;
pub mod python;
pub mod replay;
pub mod session;

pub use long_context::LongContext;
