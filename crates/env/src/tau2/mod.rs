//! tau2-bench: customer service with a user, a policy, a database and tools.
//!
//! Tasks, databases, policies and the descriptions of tools are read from the user's checkout of the original.
//!
//! | File | Subject |
//! |---|---|
//! | [`checkout`] | what is read from the checkout |
//! | `source.rs` | descriptions of tools in the original's docstrings |
//! | [`task`] | tasks as files have them |
//! | `json.rs`, `ordered.rs`, `pydantic.rs`, `arithmetic.rs` | Python's formats of results and errors |
//! | [`domain`] | the state of an episode, calls of its tools |
//! | [`retail`] | the store |
//! | [`telecom`] | the carrier, in solo mode |
//! | [`grade`](mod@grade) | grading: database, assertions, messages |
//! | [`user`] | the user: scripted, or a language model |
//! | `set`, `environment`, `expert`, `world` | the world |
//! | [`mod@replay`] | comparison with recorded episodes of the original |

mod arithmetic;
pub mod checkout;
pub mod domain;
mod environment;
mod expert;
pub mod grade;
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
