//! AppWorld behind its environment servers: `kind = "appworld"`.
//!
//! | file | subject |
//! |---|---|
//! | `client.rs` | the routes of a server |
//! | `settings.rs` | the keys of `[env]` |
//! | `world.rs` | the [`turnwise_core::TaskSet`] over servers |
//!
//! A server (`appworld serve environment`) has one world at a time, so that as many episodes are played at once as servers are
//! named. An action is Python code; what it prints is the observation, and a program of AppWorld's judges the state at the end.

mod client;
mod settings;
mod world;

pub use settings::AppWorldConfig;
pub use world::{AppWorldKind, AppWorldSet};
