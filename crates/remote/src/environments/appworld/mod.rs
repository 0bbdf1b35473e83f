//! AppWorld's environment servers: `kind = "appworld"`.
//!
//! | file | subject |
//! |---|---|
//! | `client.rs` | client of the servers |
//! | `settings.rs` | the keys of `[env]` |
//! | `world.rs` | the [`turnwise_core::TaskSet`] |
//!
//! A server (`appworld serve environment`) has one environment at a time, so there are as many
//! concurrent episodes as servers. An action is Python code, its output is the observation, and
//! AppWorld's tests evaluate the final state.

mod client;
mod settings;
mod world;

pub use settings::AppWorldConfig;
pub use world::{AppWorldKind, AppWorldSet};
