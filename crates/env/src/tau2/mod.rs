//! tau2-bench: customer service with a user, a policy, a database and tools, all read from a local
//! tau2-bench checkout.

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
