//! OpenEnv environments: `kind = "openenv"`.
//!
//! | file | subject |
//! |---|---|
//! | `session.rs` | a WebSocket with one request at a time |
//! | `wire.rs` | messages of OpenEnv 0.10 |
//! | `action.rs` | converts the policy's text to actions of the server's schema |
//! | `settings.rs` | the keys of `[env]` |
//! | `world.rs` | the [`turnwise_core::TaskSet`] |
//!
//! An episode is a session (`WS /ws`), because each of OpenEnv's HTTP calls creates a new
//! environment. A server has few sessions (`max_concurrent_envs`, 1 by default). Set
//! `sessions_per_server` to the same number; it limits the concurrent episodes.

mod action;
mod session;
mod settings;
mod wire;
mod world;

pub use settings::{ExecutionErrors, OpenEnvConfig};
pub use world::{OpenEnvKind, OpenEnvSet};
