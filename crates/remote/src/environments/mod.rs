//! Environments on servers.
//!
//! | file or folder | subject |
//! |---|---|
//! | [`openenv`] | OpenEnv environments over WebSocket |
//! | [`mcp`] | tools of MCP servers |
//! | [`appworld`] | AppWorld's environment servers |
//! | `address.rs` | addresses of servers |
//! | `demonstrations.rs` | actions in task files, for imitation |
//! | `error.rs` | failures of requests |
//! | `schema.rs` | validation of objects |
//! | `slots.rs` | limits on sessions per server |
//! | `text.rs` | texts of servers for the policy |
//!
//! A server failure is an environment error, not a reward: the trajectory is left out of its group
//! (`rollout.on_error`). A mistake of the policy is reported as an observation. Messages contain
//! neither addresses nor keys.

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

/// Adds the kinds of this module to a registry.
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
