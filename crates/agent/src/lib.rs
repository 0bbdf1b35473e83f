//! Lets users train their own agents, as the environment `env.kind = "agent"`.
//!
//! Internal to the workspace: nothing here is stable, and the documentation leaves modules out.
//!
//! An agent is any program that calls an OpenAI-compatible endpoint. For each episode it gets a
//! task, a base URL and an API key that identifies the episode. Each chat completion request is one
//! turn: the request is the observation and the reply is the action. The program prints the reward
//! in its last line of output, or posts it to `/v1/reward`.
//!
//! | file | subject |
//! |---|---|
//! | [`joining`] | the earlier turn that a request continues |
//! | [`rewards`] | reward reports from agents, and how they are assigned to turns |
//! | [`inbox`] | one episode: requests, replies, retries and reports |
//! | [`gateway`] | the HTTP endpoint of all episodes |
//! | [`program`] | the agent's process |
//! | [`world`] | the environment and its settings |

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
