//! OpenEnv environments: `kind = "openenv"`.
//!
//! An episode is a session (`WS /ws`), because each of OpenEnv's HTTP calls creates a new
//! environment. A server has few sessions (`max_concurrent_envs`, 1 by default). Set
//! `sessions_per_server` to that number; it limits the concurrent episodes.

mod action;
mod session;
mod settings;
mod wire;
mod world;

pub use settings::{ExecutionErrors, OpenEnvConfig};
pub use world::{OpenEnvKind, OpenEnvSet};
