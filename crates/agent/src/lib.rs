//! The environment `env.kind = "agent"`, which trains a user's own agent: any program that calls an
//! OpenAI-compatible endpoint.
//!
//! Internal to the workspace: nothing here is stable, and the modules are hidden from the
//! documentation.
//!
//! Each episode gets a task, a base URL and an API key. A chat completion request is the
//! observation of a turn, and the reply is the turn's action. The program prints the reward in its
//! last line or posts it to `/v1/reward`.

#[doc(hidden)]
pub mod gateway;
#[doc(hidden)]
pub mod inbox;
#[doc(hidden)]
pub mod joining;
#[doc(hidden)]
pub mod program;
#[doc(hidden)]
pub mod rewards;
#[doc(hidden)]
pub mod world;

use turnwise_env::registry::Registry;

/// Adds the `agent` environment to a registry.
///
/// ```
/// use turnwise_agent::with_agents;
/// use turnwise_env::registry::Registry;
///
/// let worlds = with_agents(Registry::builtin());
/// assert!(worlds.kind("agent")?.summary().contains("OpenAI"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn with_agents(registry: Registry) -> Registry {
    registry.with(world::AgentKind)
}
