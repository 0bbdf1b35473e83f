//! The `[rollout.engine]` table: rollouts on inference servers.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Inference server software.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ServerKind {
    /// vLLM, using the configured `route`.
    #[default]
    Vllm,
    /// SGLang, using `/generate`.
    Sglang,
}

/// vLLM's route for sampling tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ServerRoute {
    /// `/inference/v1/generate` (vLLM 0.32 with `--enable-scale-out`): token ids only, no text.
    #[default]
    Generate,
    /// `/v1/completions` with token ids (vLLM 0.10.2 or newer, no flag).
    Completions,
}

/// Weights sent to the servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ServedWeights {
    /// Only the adapter of `policy.lora`. Each version gets a new name, so a server can hold
    /// several versions.
    #[default]
    Adapter,
    /// All weights as a model folder, with any adapter merged. A server holds one version and
    /// serves only this run.
    Full,
}

/// Where AEM, EMPG and STAPO get entropies from. Servers do not report full-vocabulary entropies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EntropyKind {
    /// From a scoring pass of the learner: exact over the full vocabulary.
    #[default]
    Exact,
    /// From the negative log-prob of the sampled token: unbiased and free, but noisy for short
    /// turns.
    Sampled,
}

/// Inference servers that sample instead of this process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServersConfig {
    /// Server software.
    pub kind: ServerKind,
    /// vLLM's route for sampling tokens.
    pub route: ServerRoute,
    /// Weights sent to the servers.
    pub weights: ServedWeights,
    /// Server URLs, such as `http://127.0.0.1:8000`. All must serve `policy.model`. A trajectory
    /// stays on one server.
    #[schemars(length(min = 1, max = 1024))]
    pub urls: Vec<String>,
    /// Folder shared with the servers; each version is written there under a new name.
    pub adapter_dir: PathBuf,
    /// Path of `adapter_dir` on the servers; empty: the servers use the same path as this process.
    pub server_adapter_dir: PathBuf,
    /// Environment variable with the API key; empty: none needed.
    pub api_key_env: String,
    /// Maximum concurrent requests per server; busy or queueing servers get fewer.
    #[schemars(range(min = 1, max = 65536))]
    pub max_requests_per_server: usize,
    /// Timeout of a request in seconds. The request is then retried, on another server if possible.
    #[schemars(range(min = 0.001, max = 86400.0))]
    pub timeout_s: f64,
    /// Maximum seconds to spend on retries of one request, or of loading one adapter.
    #[schemars(range(min = 0.001, max = 604800.0))]
    pub give_up_s: f64,
    /// Seconds between reads of each server's load (`/metrics`); 0: the load is never read. New
    /// trajectories start on the least loaded server.
    #[schemars(range(min = 0.0, max = 3600.0))]
    pub load_every_s: f64,
    /// Where credit methods get entropies from.
    pub entropies: EntropyKind,
}

impl Default for ServersConfig {
    fn default() -> Self {
        Self {
            kind: ServerKind::default(),
            route: ServerRoute::default(),
            weights: ServedWeights::default(),
            urls: Vec::new(),
            adapter_dir: PathBuf::new(),
            server_adapter_dir: PathBuf::new(),
            api_key_env: String::new(),
            max_requests_per_server: 64,
            timeout_s: 600.0,
            give_up_s: 1800.0,
            load_every_s: 1.0,
            entropies: EntropyKind::default(),
        }
    }
}

impl ServersConfig {
    /// Rejects invalid combinations of settings.
    ///
    /// # Errors
    /// Returns the first invalid key, with the problem and how to fix it.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        for (index, url) in self.urls.iter().enumerate() {
            turnwise_settings::check_address(url)
                .map_err(|error| ("urls", format!("entry {index} {error}")))?;
            if self.urls[..index].contains(url) {
                return Err(("urls", format!("entry {index} is named twice; name every server once")));
            }
        }
        if self.kind == ServerKind::Sglang && self.route == ServerRoute::Completions {
            let reason = "is `completions`, which is a route of vLLM; leave it out for SGLang, or set `kind = \"vllm\"`";
            return Err(("route", reason.into()));
        }
        if self.adapter_dir.as_os_str().is_empty() {
            let reason = "is empty; name a folder that this program and the servers share";
            return Err(("adapter_dir", reason.into()));
        }
        Ok(())
    }
}
