//! The keys of `[env]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Settings of an environment made of MCP tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpConfig {
    /// Command that starts a server for each episode and communicates over stdin and stdout, for
    /// example `["python3", "server.py"]`. Set either this or `urls`.
    pub command: Vec<String>,
    /// Working directory of the command; by default the current directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// Environment variables passed to the command, in addition to the standard ones (`PATH`,
    /// `HOME` etc.).
    pub environment: Vec<String>,
    /// Addresses of streamable HTTP servers, for example `["http://127.0.0.1:8000/mcp"]`; each
    /// episode is one session.
    pub urls: Vec<String>,
    /// Environment variable that contains the API key for `urls`; empty if no key is needed.
    pub api_key_env: String,
    /// Maximum number of concurrent episodes: processes of `command`, or sessions per server in
    /// `urls`.
    #[schemars(range(min = 1, max = 65536))]
    pub sessions: usize,
    /// Task file for each split, as JSON lines.
    pub tasks: BTreeMap<String, PathBuf>,
    /// Tools that the policy can use; if empty, all except those that judge tasks (`verify`).
    pub tools: Vec<String>,
    /// Name of the call by which the policy gives its answer and ends the episode.
    pub answer_tool: String,
    /// Maximum length of an observation in characters; longer ones are truncated.
    #[schemars(range(min = 16, max = 10000000))]
    pub observation_chars: usize,
    /// Minimum reward from a judging tool for an episode to count as successful.
    pub success_reward: f64,
    /// Timeout for starting a server, in seconds.
    #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
    pub start_timeout_s: f64,
    /// Timeout for a tool call, in seconds.
    #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
    pub timeout_s: f64,
    /// Maximum size of a reply from `urls`, in bytes (from `command`: 16 MiB).
    #[schemars(range(min = 1024, max = 1073741824))]
    pub max_message_bytes: usize,
}

impl Default for McpConfig {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            directory: None,
            environment: Vec::new(),
            urls: Vec::new(),
            api_key_env: String::new(),
            sessions: 4,
            tasks: BTreeMap::new(),
            tools: Vec::new(),
            answer_tool: "answer".to_owned(),
            observation_chars: 20_000,
            success_reward: 1.0,
            start_timeout_s: 60.0,
            timeout_s: 60.0,
            max_message_bytes: 16 << 20,
        }
    }
}
