//! Environments on servers: [`openenv`], [`mcp`] and [`appworld`].
//!
//! A server failure is an environment error, so the trajectory is excluded from its group (see
//! `rollout.on_error`). The policy's mistakes are explained in the next observation. Messages
//! contain neither addresses nor keys.

mod address;
pub mod appworld;
mod demonstrations;
mod error;
pub mod mcp;
pub mod openenv;
mod schema;
mod slots;
mod text;

use turnwise_env::registry::Registry;

/// Adds the environments `openenv`, `mcp` and `appworld` to a registry.
///
/// ```
/// use turnwise_env::registry::Registry;
/// use turnwise_remote::environments::with_environments;
///
/// let worlds = with_environments(Registry::builtin());
/// assert_eq!(worlds.kind("openenv")?.summary(), "an OpenEnv environment behind a server");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn with_environments(registry: Registry) -> Registry {
    registry.with(openenv::OpenEnvKind).with(mcp::McpKind).with(appworld::AppWorldKind)
}
