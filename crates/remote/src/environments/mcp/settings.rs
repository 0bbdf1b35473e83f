//! Keys of `[env]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Settings of an environment of MCP tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpConfig {
    /// Command that starts a separate server for each episode, which communicates over stdin and
    /// stdout, for example `["python3", "server.py"]`. Set either this or `urls`.
    pub command: Vec<String>,
    /// The command's working directory; by default the current one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// Environment variables passed to the command besides the standard ones (`PATH`, `HOME` etc.).
    pub environment: Vec<String>,
    /// Addresses of streamable HTTP servers, for example `["http://127.0.0.1:8000/mcp"]`; each
    /// episode is one session.
    pub urls: Vec<String>,
    /// Name of the environment variable that contains the API key for `urls`; empty if they need no
    /// key.
    pub api_key_env: String,
    /// Maximum concurrent episodes: processes of `command`, or sessions per server in `urls`.
    #[schemars(range(min = 1, max = 65536))]
    pub sessions: usize,
    /// Task file (JSON lines) for each split.
    pub tasks: BTreeMap<String, PathBuf>,
    /// Tools for the policy; if empty, all except those that judge tasks (`verify`).
    pub tools: Vec<String>,
    /// Name of the call that gives the policy's answer and ends the episode.
    pub answer_tool: String,
    /// Maximum observation length in characters; the rest is cut off.
    #[schemars(range(min = 16, max = 10000000))]
    pub observation_chars: usize,
    /// Minimum reward for an episode to count as a success, if a tool judges it.
    pub success_reward: f64,
    /// Timeout for starting a server, in seconds.
    #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
    pub start_timeout_s: f64,
    /// Timeout for a tool call, in seconds.
    #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
    pub timeout_s: f64,
    /// Maximum size in bytes of a reply from a server in `urls`. For `command`, the limit is always
    /// 16 MiB.
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
