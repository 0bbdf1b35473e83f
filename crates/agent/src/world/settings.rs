//! The keys of `[env]`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where an episode's reward comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RewardRule {
    /// The agent reports it in its last line of output or to `/v1/reward`. An episode without a
    /// report fails.
    #[default]
    Reported,
    /// The program's exit code: 0 gives reward 1, any other code gives 0. Reported rewards are
    /// added to it.
    ExitCode,
}

/// Settings of an agent that uses an OpenAI-compatible endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    /// The agent's program and its arguments, for example `["python3", "agent.py"]`.
    pub command: Vec<String>,
    /// Working directory of the agent; by default the current directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// Task file for each split. Each JSON line has an `id` and any other keys that the agent
    /// reads.
    pub tasks: BTreeMap<String, PathBuf>,
    /// Whether each program plays several episodes. If so, it reads one episode per line from stdin
    /// and prints a line with the reward after each. Otherwise a new program is started for each
    /// episode.
    pub reuse: bool,
    /// Maximum number of concurrent agents.
    #[schemars(range(min = 1, max = 65536))]
    pub concurrency: usize,
    /// Where an episode's reward comes from.
    pub reward: RewardRule,
    /// Reward of an episode whose agent crashes, hangs or reports nothing. If unset, such an
    /// episode is an environment error and is excluded from its group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reward: Option<f64>,
    /// If the agent reports no `success`, an episode counts as successful when its total reward is
    /// at least this.
    pub success_return: f64,
    /// Maximum time in seconds from a reply to the agent's next request or its end, after which the
    /// agent is killed.
    #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
    pub timeout_s: f64,
    /// Maximum time in seconds until the agent's first request.
    #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
    pub start_timeout_s: f64,
    /// Address of the endpoint; port 0 selects a free port. Anyone who can reach this address and
    /// knows an episode's key can report rewards.
    #[schemars(with = "String")]
    pub listen: SocketAddr,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            directory: None,
            tasks: BTreeMap::new(),
            reuse: false,
            concurrency: 8,
            reward: RewardRule::Reported,
            failure_reward: None,
            success_return: 1.0,
            timeout_s: 60.0,
            start_timeout_s: 60.0,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        }
    }
}
