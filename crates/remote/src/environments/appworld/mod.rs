//! AppWorld behind its environment servers: `kind = "appworld"`.
//!
//! | file | subject |
//! |---|---|
//! | `client.rs` | the routes of a server |
//! | `settings.rs` | the keys of `[env]` |
//! | `world.rs` | the [`turnwise_core::TaskSet`] over servers |
//!
//! A server (`appworld serve environment`) has one environment at a time, so there are as many
//! concurrent episodes as servers. An action is Python code, its output is the observation, and
//! AppWorld's tests judge the final state.

mod client;
mod settings;
mod world;

pub use settings::AppWorldConfig;
pub use world::{AppWorldKind, AppWorldSet};
