//! OpenEnv environments: `kind = "openenv"`.
//!
//! Each episode is one session (`WS /ws`), because each of OpenEnv's HTTP calls creates a new
//! environment. A server allows only a few sessions (`max_concurrent_envs`, 1 by default). Set
//! `sessions_per_server` to that number, which limits the number of concurrent episodes.

mod action;
mod session;
mod settings;
mod wire;
mod world;

pub use settings::{ExecutionErrors, OpenEnvConfig};
pub use world::{OpenEnvKind, OpenEnvSet};
