//! Keys of `[env]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// AppWorld settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AppWorldConfig {
    /// Addresses of environment servers, for example
    /// `["http://127.0.0.1:8000", "http://127.0.0.1:8001"]`; each runs one episode at a time.
    pub urls: Vec<String>,
    /// Folder of split files: AppWorld's `data/datasets` with `train.txt`, `dev.txt`,
    /// `test_normal.txt` and `test_challenge.txt`.
    pub datasets: PathBuf,
    /// Experiment name under which servers store episodes.
    pub experiment: String,
    /// Additional `/initialize` arguments, such as `max_api_calls_per_interaction`.
    pub initialize: BTreeMap<String, Value>,
    /// Reward for a solved task, at the end of the episode (verl-agent uses 10).
    pub success_reward: f64,
    /// Maximum observation length in characters; the rest is cut off.
    #[schemars(range(min = 16, max = 10000000))]
    pub observation_chars: usize,
    /// Timeout of a server's reply in seconds; set it above the server's own limit for running code
    /// (100 seconds).
    #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
    pub timeout_s: f64,
    /// Maximum reply size in bytes.
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
