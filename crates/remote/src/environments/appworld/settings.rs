//! The keys of `[env]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Settings of AppWorld.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AppWorldConfig {
    /// Addresses of the environment servers, for example
    /// `["http://127.0.0.1:8000", "http://127.0.0.1:8001"]`; each runs one episode at a time.
    pub urls: Vec<String>,
    /// Folder with the split files: AppWorld's `data/datasets`, which has `train.txt`, `dev.txt`,
    /// `test_normal.txt` and `test_challenge.txt`.
    pub datasets: PathBuf,
    /// Experiment name under which the servers store the output of episodes.
    pub experiment: String,
    /// Additional arguments for `/initialize`, such as `max_api_calls_per_interaction`.
    pub initialize: BTreeMap<String, Value>,
    /// Reward for solving a task, given at the end of the episode (verl-agent uses 10).
    pub success_reward: f64,
    /// Maximum length of an observation in characters; longer ones are truncated.
    #[schemars(range(min = 16, max = 10000000))]
    pub observation_chars: usize,
    /// Timeout for a server's reply, in seconds; set it above the server's time limit for code
    /// (100).
    #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
    pub timeout_s: f64,
    /// Maximum size of a server's reply, in bytes.
    #[schemars(range(min = 1024, max = 1073741824))]
    pub max_message_bytes: usize,
}

impl Default for AppWorldConfig {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            datasets: PathBuf::from("data/datasets"),
            experiment: "turnwise".to_owned(),
            initialize: BTreeMap::new(),
            success_reward: 1.0,
            observation_chars: 10_000,
            timeout_s: 110.0,
            max_message_bytes: 16 << 20,
        }
    }
}
