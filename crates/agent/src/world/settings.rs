//! Keys of `[env]`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Source of an episode's reward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RewardRule {
    /// The reward that the agent reports in its last line of output or posts to `/v1/reward`. An
    /// episode without a report fails.
    #[default]
    Reported,
    /// 1 if the exit code is 0 and 0 otherwise, plus any reported rewards.
    ExitCode,
}

/// Settings of an agent that uses an OpenAI-compatible endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    /// Program and arguments, for example `["python3", "agent.py"]`.
    pub command: Vec<String>,
    /// The agent's working directory; by default the current one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// Task file per split: JSON lines with an `id` and any keys for the agent.
    pub tasks: BTreeMap<String, PathBuf>,
    /// Whether one process of the program plays several episodes. Such a program reads one episode
    /// from each line of stdin and prints a line with the reward after each episode. If false, each
    /// episode starts a new process.
    pub reuse: bool,
    /// Maximum number of concurrent agents.
    #[schemars(range(min = 1, max = 65536))]
    pub concurrency: usize,
    /// Source of an episode's reward.
    pub reward: RewardRule,
    /// Reward if the agent crashes, hangs or reports nothing. If unset, such an episode is an
    /// environment error and is excluded from its group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reward: Option<f64>,
    /// Minimum total reward that counts as success, unless the agent reports `success`.
    pub success_return: f64,
    /// Maximum seconds from a reply to the next request or the end of the episode. An agent that
    /// takes longer is killed.
    #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
    pub timeout_s: f64,
    /// Maximum seconds until the first request.
    #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
    pub start_timeout_s: f64,
    /// Endpoint address; port 0 selects a free port. Anyone who can reach this address and has an
    /// episode's key can report rewards.
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
