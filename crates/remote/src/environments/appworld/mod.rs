//! AppWorld's environment servers: `kind = "appworld"`.
//!
//! A server (`appworld serve environment`) has one environment at a time, so there are as many
//! concurrent episodes as servers. An action is Python code, its output is the observation, and
//! AppWorld's tests evaluate the final state.

mod client;
mod settings;
mod world;

pub use settings::AppWorldConfig;
pub use world::{AppWorldKind, AppWorldSet};
