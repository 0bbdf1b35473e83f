//! The keys of `[env]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How to treat an exception in a server's `step`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExecutionErrors {
    /// The exception is a failure of the environment: the trajectory is dropped.
    #[default]
    Fault,
    /// The exception means an invalid action: its text is the observation, and the episode continues.
    Observation,
}

/// Settings of an OpenEnv environment on servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OpenEnvConfig {
    /// Addresses of servers with the same environment, for example `["http://127.0.0.1:8000"]`;
    /// episodes are distributed over them.
    pub urls: Vec<String>,
    /// Environment variable with the servers' API key; none if empty.
    pub api_key_env: String,
    /// Concurrent episodes per server: its `max_concurrent_envs`.
    #[schemars(range(min = 1, max = 65536))]
    pub sessions_per_server: usize,
    /// Goal in prompts; if empty, the server's description of the environment.
    pub goal: String,
    /// Task files by split, JSON lines. Without files, tasks are seeds.
    pub tasks: BTreeMap<String, PathBuf>,
    /// Number of training tasks without files: seeds from 0.
    #[schemars(range(min = 1, max = 1000000))]
    pub train: usize,
    /// Number of test tasks without files: seeds from 1,000,000.
    #[schemars(range(min = 1, max = 1000000))]
    pub test: usize,
    /// Additional arguments of every reset.
    pub reset: BTreeMap<String, Value>,
    /// Fields of an observation to show; all if empty. A single field is shown without its name.
    pub observation: Vec<String>,
    /// Maximum characters of an observation; longer ones are truncated.
    #[schemars(range(min = 16, max = 10000000))]
    pub observation_chars: usize,
    /// Field of an observation that lists the admissible actions; none if empty.
    pub admissible: String,
    /// Field of an action for plain text; if empty, the only required field.
    pub action_field: String,
    /// An episode that the server ends is successful if its total reward is at least this.
    pub success_return: f64,
    /// How to treat an exception in the server's `step`.
    pub execution_errors: ExecutionErrors,
    /// Time limit for connecting, in seconds.
    #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
    pub connect_timeout_s: f64,
    /// Time limit of a reply, in seconds.
    #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
    pub timeout_s: f64,
    /// Time for which a server that reports being full is retried, in seconds.
    #[schemars(range(min = 0.0, max = 86400.0))]
    pub full_timeout_s: f64,
    /// Maximum size of a server's message, in bytes.
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
