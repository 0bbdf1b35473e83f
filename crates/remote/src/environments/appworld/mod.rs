//! AppWorld's environment servers: `kind = "appworld"`.
//!
//! A server (`appworld serve environment`) runs one episode at a time. Actions are Python code
//! whose output is the observation; AppWorld's tests evaluate the final state.

mod client;
mod settings;
mod world;

pub use settings::AppWorldConfig;
pub use world::{AppWorldKind, AppWorldSet};
