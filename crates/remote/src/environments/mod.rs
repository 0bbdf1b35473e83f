//! Environments on servers.
//!
//! | file or folder | subject |
//! |---|---|
//! | [`openenv`] | OpenEnv environments over WebSocket |
//! | [`mcp`] | tools from MCP servers |
//! | [`appworld`] | AppWorld's environment servers |
//! | `address.rs` | addresses of servers |
//! | `demonstrations.rs` | actions from task files, for imitation |
//! | `error.rs` | failures of requests |
//! | `schema.rs` | validation of objects |
//! | `slots.rs` | limits on concurrent sessions per server |
//! | `text.rs` | formats text from servers for the policy |
//!
//! A server failure is an environment error and not a reward, so the trajectory is excluded from
//! its group (`rollout.on_error`). The next observation explains a mistake of the policy.
//! Messages contain neither addresses nor keys.

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

/// Adds the environments in this module to a registry.
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
