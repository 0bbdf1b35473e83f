//! The `[rollout.engine]` table: rollouts on inference servers.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Program that answers at the servers' addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ServerKind {
    /// vLLM, by `/inference/v1/generate`.
    #[default]
    Vllm,
    /// SGLang, by `/generate`.
    Sglang,
}

/// Entropies of sampled turns, where credit reads them (AEM, EMPG, STAPO): servers give none over the whole vocabulary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EntropyKind {
    /// One scoring pass of the learner: exact over the full vocabulary.
    #[default]
    Exact,
    /// The negative log-probability of the one token that was sampled: an estimate without bias that costs nothing, and is
    /// noisy in short turns.
    Sampled,
}

/// Inference servers that sample in the place of the engine in this process. The learner trains an adapter
/// (`policy.lora`) and hands every new version of it to the servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServersConfig {
    /// Program that the servers run: `vllm` or `sglang`.
    pub kind: ServerKind,
    /// Base address of every server, such as `http://127.0.0.1:8000`. All serve the model of `policy.model`; a trajectory
    /// stays with one of them.
    #[schemars(length(min = 1, max = 1024))]
    pub urls: Vec<String>,
    /// Folder that this program and the servers share, where adapters are written, each version under a new name.
    pub adapter_dir: PathBuf,
    /// The same folder as the servers see it, where its path is another one there; empty for the same path.
    pub server_adapter_dir: PathBuf,
    /// Name of the environment variable that holds the servers' API key; empty where they want none.
    pub api_key_env: String,
    /// Requests that one server works on at most. Fewer are sent to a server that answers that it is busy.
    #[schemars(range(min = 1, max = 65536))]
    pub max_requests_per_server: usize,
    /// Seconds until a request without an answer counts as failed. It is then asked again, elsewhere where there are
    /// several servers.
    #[schemars(range(min = 0.001, max = 86400.0))]
    pub timeout_s: f64,
    /// Seconds for which a request, or the loading of an adapter, is tried before it is given up.
    #[schemars(range(min = 0.001, max = 604800.0))]
    pub give_up_s: f64,
    /// Entropies of sampled turns where credit reads them: `exact` by a scoring pass of the learner, `sampled` estimated by the
    /// negative log-probabilities of the sampled tokens.
    pub entropies: EntropyKind,
}

impl Default for ServersConfig {
    fn default() -> Self {
        Self {
            kind: ServerKind::default(),
            urls: Vec::new(),
            adapter_dir: PathBuf::new(),
            server_adapter_dir: PathBuf::new(),
            api_key_env: String::new(),
            max_requests_per_server: 64,
            timeout_s: 600.0,
            give_up_s: 1800.0,
            entropies: EntropyKind::default(),
        }
    }
}

impl ServersConfig {
    /// Refuses settings that cannot work, besides those outside of their ranges.
    ///
    /// # Errors
    /// The key, and what would do.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        for (index, url) in self.urls.iter().enumerate() {
            let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
            if rest.is_none_or(str::is_empty) {
                let reason = format!("entry {index} must start with http:// or https:// and name a server");
                return Err(("urls", reason));
            }
            if url.contains('@') {
                let reason =
                    format!("entry {index} must hold no user name or password; use `api_key_env` for a key");
                return Err(("urls", reason));
            }
            if self.urls[..index].contains(url) {
                return Err(("urls", format!("entry {index} is named twice; name every server once")));
            }
        }
        if self.adapter_dir.as_os_str().is_empty() {
            let reason = "is empty; name a folder that this program and the servers share";
            return Err(("adapter_dir", reason.into()));
        }
        Ok(())
    }
}
