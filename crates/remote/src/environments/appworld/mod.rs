//! AppWorld's environment servers: `kind = "appworld"`.
//!
//! An AppWorld server (`appworld serve environment`) runs one environment at a time, so the number
//! of concurrent episodes equals the number of servers. An action is Python code, and its output is
//! the observation. AppWorld's tests evaluate the final state.

mod client;
mod settings;
mod world;

pub use settings::AppWorldConfig;
pub use world::{AppWorldKind, AppWorldSet};
