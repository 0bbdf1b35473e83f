//! The keys of `[env]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Settings of an environment of MCP tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpConfig {
    /// Command of a server that is started for every episode and uses stdin and stdout, for example
    /// `["python3", "server.py"]`. Set either this or `urls`.
    pub command: Vec<String>,
    /// Working directory of the command; by default the current directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// Environment variables passed to the command, in addition to the usual ones (`PATH`, `HOME`
    /// etc.).
    pub environment: Vec<String>,
    /// Addresses of servers over streamable HTTP, for example `["http://127.0.0.1:8000/mcp"]`; an
    /// episode is a session.
    pub urls: Vec<String>,
    /// Environment variable with the API key for `urls`; none if empty.
    pub api_key_env: String,
    /// Maximum concurrent episodes: processes of `command`, or sessions of each of `urls`.
    #[schemars(range(min = 1, max = 65536))]
    pub sessions: usize,
    /// Task files by split, JSON lines.
    pub tasks: BTreeMap<String, PathBuf>,
    /// Tools that the policy sees; if empty, all except those that judge tasks (`verify`).
    pub tools: Vec<String>,
    /// Name of the call that ends an episode with an answer.
    pub answer_tool: String,
    /// Maximum characters of an observation; longer ones are truncated.
    #[schemars(range(min = 16, max = 10000000))]
    pub observation_chars: usize,
    /// Minimum reward of a judging tool for a successful episode.
    pub success_reward: f64,
    /// Time limit of a server's start, in seconds.
    #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
    pub start_timeout_s: f64,
    /// Time limit of a call, in seconds.
    #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
    pub timeout_s: f64,
    /// Maximum size of a reply of `urls`, in bytes (of `command`: 16 MiB).
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
