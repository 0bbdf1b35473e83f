//! Keys of `[env]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Treatment of an exception in the server's `step`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExecutionErrors {
    /// An environment failure: the trajectory is dropped.
    #[default]
    Fault,
    /// An invalid action: its text becomes the observation, and the episode continues.
    Observation,
}

/// Settings of an OpenEnv environment on servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OpenEnvConfig {
    /// Addresses of servers with the same environment, for example `["http://127.0.0.1:8000"]`;
    /// episodes are spread over them.
    pub urls: Vec<String>,
    /// Name of the environment variable that contains the servers' API key; empty if they need no
    /// key.
    pub api_key_env: String,
    /// Concurrent episodes per server; set it to `max_concurrent_envs`.
    #[schemars(range(min = 1, max = 65536))]
    pub sessions_per_server: usize,
    /// Goal in prompts; by default the server's description.
    pub goal: String,
    /// Task file (JSON lines) for each split. Without task files, each task is a seed.
    pub tasks: BTreeMap<String, PathBuf>,
    /// Number of training tasks if there are no task files; their seeds start at 0.
    #[schemars(range(min = 1, max = 1000000))]
    pub train: usize,
    /// Number of test tasks if there are no task files; their seeds start at 1,000,000.
    #[schemars(range(min = 1, max = 1000000))]
    pub test: usize,
    /// Additional arguments of every reset.
    pub reset: BTreeMap<String, Value>,
    /// Observation fields to show; empty for all. A single field is shown without its name.
    pub observation: Vec<String>,
    /// Maximum observation length in characters; the rest is cut off.
    #[schemars(range(min = 16, max = 10000000))]
    pub observation_chars: usize,
    /// Observation field with the admissible actions, if any.
    pub admissible: String,
    /// Action field for plain text; by default the only required one.
    pub action_field: String,
    /// Minimum total reward for an episode to count as a success, provided that the server ended
    /// it.
    pub success_return: f64,
    /// Treatment of an exception in the server's `step`.
    pub execution_errors: ExecutionErrors,
    /// Connection timeout in seconds.
    #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
    pub connect_timeout_s: f64,
    /// Timeout of a server's reply in seconds.
    #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
    pub timeout_s: f64,
    /// How long to retry while a server is full, in seconds.
    #[schemars(range(min = 0.0, max = 86400.0))]
    pub full_timeout_s: f64,
    /// Maximum message size in bytes.
    #[schemars(range(min = 1024, max = 1073741824))]
    pub max_message_bytes: usize,
}

impl Default for OpenEnvConfig {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            api_key_env: String::new(),
            sessions_per_server: 1,
            goal: String::new(),
            tasks: BTreeMap::new(),
            train: 256,
            test: 64,
            reset: BTreeMap::new(),
            observation: Vec::new(),
            observation_chars: 20_000,
            admissible: String::new(),
            action_field: String::new(),
            success_return: 1.0,
            execution_errors: ExecutionErrors::Fault,
            connect_timeout_s: 10.0,
            timeout_s: 60.0,
            full_timeout_s: 20.0,
            max_message_bytes: 16 << 20,
        }
    }
}
