//! Who trains the policy: this process or a service.

use serde::{Deserialize, Serialize};

/// Who trains the policy: `{ kind = "tinker", ... }`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum PolicyLearnerConfig {
    /// This process trains and samples.
    #[default]
    Native,
    /// A Tinker-compatible service (SkyRL, Tinker) trains a LoRA adapter and samples from it. Needs
    /// the feature `remote`.
    Tinker(TinkerConfig),
}

/// A Tinker-compatible training service. `policy.model` names the same model locally; only its
/// tokenizer and `config.json` are read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TinkerConfig {
    /// Address of the service, for example `http://127.0.0.1:8000`; `https://` works, too.
    pub url: String,
    /// Environment variable with the API key. Empty: no key is sent; SkyRL ignores it.
    pub api_key_env: String,
    /// Name of the model at the service. Absent: the service's only model.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub base_model: Option<String>,
    /// Rank of the adapter. Its scale is the service's (SkyRL and Tinker: alpha = 32).
    #[schemars(range(min = 1, max = 4096))]
    pub rank: usize,
    /// How the service averages a loss over tokens and sequences. It is measured when a run starts;
    /// a value that contradicts the measurement is rejected.
    pub reduction: ReductionSetting,
    /// `direct`: send a loss by name if the service has exactly the configured one. `linearised`:
    /// send every loss by its derivatives.
    pub losses: LossForm,
    /// Maximum seconds of a request, with queueing, compilation and retries.
    #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
    pub timeout_s: f64,
}

impl Default for TinkerConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            api_key_env: String::new(),
            base_model: None,
            rank: 32,
            reduction: ReductionSetting::default(),
            losses: LossForm::default(),
            timeout_s: 1800.0,
        }
    }
}

/// How a service averages losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReductionSetting {
    /// Measure it.
    #[default]
    Auto,
    /// Sum over tokens and sequences (SkyRL on FSDP and Megatron, Tinker).
    Sum,
    /// Mean over the weighted tokens of each sequence and over the sequences of an update (SkyRL on
    /// JAX).
    SeqMeanBatchMean,
}

/// How losses are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LossForm {
    /// By name, if the service has the loss.
    #[default]
    Direct,
    /// By derivatives, with one extra forward pass.
    Linearised,
}

impl TinkerConfig {
    /// Rejects invalid settings; returns the key and the problem.
    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        if self.url.is_empty() {
            return Err((
                "url",
                "is missing; set it to the service's address, for example http://127.0.0.1:8000".into(),
            ));
        }
        turnwise_settings::check_address(&self.url).map_err(|error| ("url", error.to_string()))
    }
}
