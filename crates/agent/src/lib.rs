//! The user's own agents as an environment: `env.kind = "agent"`.
//!
//! An agent is any program that uses an OpenAI-compatible endpoint. For each episode it gets a
//! task, a base URL and an API key that identifies the episode. Each chat completion request is a
//! turn: the observation is the request, the action the reply. The program reports the reward in
//! its last line of output, or posts it to `/v1/reward`.
//!
//! | file | subject |
//! |---|---|
//! | [`joining`] | the earlier turn that a request continues |
//! | [`rewards`] | reports of an agent, and how rewards are assigned to turns |
//! | [`inbox`] | one episode: its requests, replies, retries and reports |
//! | [`gateway`] | the HTTP endpoint of all episodes |
//! | [`program`] | the agent's process |
//! | [`world`] | the environment and its settings |

pub mod gateway;
pub mod inbox;
pub mod joining;
pub mod program;
pub mod rewards;
pub mod world;

use turnwise_env::registry::Registry;

/// Adds the kind `agent` to a registry.
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
