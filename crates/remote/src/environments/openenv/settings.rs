//! The keys of `[env]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How to treat an exception in the server's `step`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExecutionErrors {
    /// As an environment failure: the trajectory is dropped.
    #[default]
    Fault,
    /// As an invalid action: the exception's text becomes the observation, and the episode
    /// continues.
    Observation,
}

/// Settings of an OpenEnv environment that runs on servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OpenEnvConfig {
    /// Addresses of servers that run the same environment, for example `["http://127.0.0.1:8000"]`;
    /// episodes are distributed among them.
    pub urls: Vec<String>,
    /// Environment variable that contains the servers' API key; empty if no key is needed.
    pub api_key_env: String,
    /// Number of concurrent episodes per server; set it to the server's `max_concurrent_envs`.
    #[schemars(range(min = 1, max = 65536))]
    pub sessions_per_server: usize,
    /// Goal shown in prompts; if empty, the server's description of the environment is used.
    pub goal: String,
    /// Task file for each split, as JSON lines. Without task files, each task is a seed.
    pub tasks: BTreeMap<String, PathBuf>,
    /// Number of training tasks if there are no task files; their seeds start at 0.
    #[schemars(range(min = 1, max = 1000000))]
    pub train: usize,
    /// Number of test tasks if there are no task files; their seeds start at 1,000,000.
    #[schemars(range(min = 1, max = 1000000))]
    pub test: usize,
    /// Additional arguments for every reset.
    pub reset: BTreeMap<String, Value>,
    /// Observation fields to show; empty for all. If only one field is shown, its name is omitted.
    pub observation: Vec<String>,
    /// Maximum length of an observation in characters; longer ones are truncated.
    #[schemars(range(min = 16, max = 10000000))]
    pub observation_chars: usize,
    /// Observation field that lists the admissible actions; empty if no field does.
    pub admissible: String,
    /// Action field that receives plain text; if empty, the only required field.
    pub action_field: String,
    /// An episode ended by the server is successful if its total reward is at least this.
    pub success_return: f64,
    /// How to treat an exception in the server's `step`.
    pub execution_errors: ExecutionErrors,
    /// Timeout for connecting, in seconds.
    #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
    pub connect_timeout_s: f64,
    /// Timeout for a server's reply, in seconds.
    #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
    pub timeout_s: f64,
    /// How long to retry a server that reports being full, in seconds.
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
