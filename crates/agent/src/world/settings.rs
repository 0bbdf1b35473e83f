//! The keys of `[env]`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where the reward of an episode comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RewardRule {
    /// The agent reports it: in its last line, or to `/v1/reward`. An episode without a report has failed.
    #[default]
    Reported,
    /// The program's exit code: 0 gives 1, another 0. Reports count besides.
    ExitCode,
}

/// The settings of an agent that uses an OpenAI-compatible endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    /// The agent's program and its arguments, for example `["python3", "agent.py"]`.
    pub command: Vec<String>,
    /// The folder it runs in; this program's own if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// Files of tasks by split, JSON lines with an `id` and whatever the agent reads.
    pub tasks: BTreeMap<String, PathBuf>,
    /// A program plays one episode after the other: it reads an episode a line from its input, and ends each with a line with its
    /// reward. Otherwise each episode starts a program.
    pub reuse: bool,
    /// Agents that run at once.
    #[schemars(range(min = 1, max = 65536))]
    pub concurrency: usize,
    /// Where the reward of an episode comes from.
    pub reward: RewardRule,
    /// Reward of an episode whose agent crashes, hangs or reports nothing. Without it such an episode is an error of the environment
    /// and is left out of its group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reward: Option<f64>,
    /// An episode that reports no `success` is one if its rewards add up to this or more.
    pub success_return: f64,
    /// Limit of the time that an agent takes between a reply and its next request or its end, in seconds. It is killed then.
    #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
    pub timeout_s: f64,
    /// Limit of the time that an agent takes until its first request, in seconds.
    #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
    pub start_timeout_s: f64,
    /// Address of the endpoint. With port 0 a free one is taken. Whoever reaches it and knows an episode's key can give rewards.
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
