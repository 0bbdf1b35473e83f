//! tau2-bench: customer service with a user, a policy, a database and tools.
//!
//! Tasks, databases, policies and tool descriptions are read from the user's checkout of the
//! original.
//!
//! | File | Subject |
//! |---|---|
//! | [`checkout`] | reading the checkout |
//! | `source.rs` | tool descriptions from the original's docstrings |
//! | [`task`] | tasks in the original's file format |
//! | `json.rs`, `ordered.rs`, `pydantic.rs`, `arithmetic.rs` | Python's formats for results and errors |
//! | [`domain`] | the state of an episode and tool calls |
//! | [`retail`] | the store |
//! | [`telecom`] | the carrier's technical support, in solo mode |
//! | `grade` | grading: database, assertions, and messages |
//! | [`user`] | the user: scripted, or simulated by a language model |
//! | `set`, `environment`, `expert`, `world` | the world |
//! | [`mod@replay`] | comparison with recorded episodes of the original |

mod arithmetic;
pub mod checkout;
pub mod domain;
mod environment;
mod expert;
pub(crate) mod grade;
mod json;
mod ordered;
mod pydantic;
pub mod replay;
pub mod retail;
mod set;
mod source;
pub mod task;
pub mod telecom;
pub mod user;
mod world;

pub use domain::Tau2Domain;
pub use environment::Tau2Env;
pub use set::{Tau2Options, Tau2Tasks};
pub use world::{Tau2Expert, Tau2Kind, Tau2Settings, Tau2World};
