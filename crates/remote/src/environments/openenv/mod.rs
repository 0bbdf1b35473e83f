//! Environments of OpenEnv: `kind = "openenv"`.
//!
//! | file | subject |
//! |---|---|
//! | `session.rs` | a WebSocket with one request at a time |
//! | `wire.rs` | messages and answers of OpenEnv 0.10 |
//! | `action.rs` | what the policy wrote, as an action of the server's schema |
//! | `settings.rs` | the keys of `[env]` |
//! | `world.rs` | the [`turnwise_core::TaskSet`] over servers |
//!
//! An episode is a session (`WS /ws`): OpenEnv's HTTP calls make a new environment each. A server has room for few sessions
//! (`max_concurrent_envs`, 1 by default), which `sessions_per_server` repeats here; no more episodes begin than there are sessions.

mod action;
mod session;
mod settings;
mod wire;
mod world;

pub use settings::{ExecutionErrors, OpenEnvConfig};
pub use world::{OpenEnvKind, OpenEnvSet};
