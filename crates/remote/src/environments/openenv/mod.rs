//! OpenEnv environments: `kind = "openenv"`.
//!
//! Each episode is one session (`WS /ws`), because each HTTP call would create a new environment.
//! Set `sessions_per_server` to the server's `max_concurrent_envs` (default 1).

mod action;
mod session;
mod settings;
mod wire;
mod world;

pub use settings::{ExecutionErrors, OpenEnvConfig};
pub use world::{OpenEnvKind, OpenEnvSet};
