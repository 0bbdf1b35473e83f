//! Worlds that servers play.
//!
//! | file or folder | subject |
//! |---|---|
//! | [`openenv`] | environments of OpenEnv over their WebSocket |
//! | [`mcp`] | tools of MCP servers |
//! | [`appworld`] | AppWorld behind its environment servers |
//! | `address.rs` | addresses of servers |
//! | `demonstrations.rs` | actions of a task's line, to imitate |
//! | `error.rs` | failures of requests to them |
//! | `schema.rs` | objects held against a schema |
//! | `slots.rs` | the sessions that servers have room for |
//! | `text.rs` | texts of servers as a policy sees them |
//!
//! A server failure is an error of the environment, not a reward: the trajectory is left out of its
//! group (`rollout.on_error`). A mistake of the policy gives an observation. No message contains an
//! address or a key.

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

/// Returns the same registry with the kinds of this module.
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
