//! What trains the policy: this process or a training service.

use serde::{Deserialize, Serialize};

/// What trains the policy: `{ kind = "tinker", ... }`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum PolicyLearnerConfig {
    /// This process trains the policy and samples from it.
    #[default]
    Native,
    /// A Tinker-compatible service (SkyRL, Tinker) trains and samples a LoRA adapter; needs the
    /// feature `remote`.
    Tinker(TinkerConfig),
}

/// A Tinker-compatible service. `policy.model` names the same model locally; only its tokenizer and
/// `config.json` are used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TinkerConfig {
    /// Service URL, such as `http://127.0.0.1:8000`.
    pub url: String,
    /// Environment variable with the API key; empty: none (SkyRL ignores it).
    pub api_key_env: String,
    /// The model's name in the service. Absent: the service's only model.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub base_model: Option<String>,
    /// Adapter rank. The service sets the adapter's scale (SkyRL and Tinker: alpha = 32).
    #[schemars(range(min = 1, max = 4096))]
    pub rank: usize,
    /// How the service averages a loss over tokens and sequences. A wrong setting is rejected when
    /// the run starts.
    pub reduction: ReductionSetting,
    /// In which form losses are sent to the service.
    pub losses: LossForm,
    /// Maximum seconds of a request, including queueing, compilation and retries.
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
    /// The averaging is measured at the start of the run.
    #[default]
    Auto,
    /// Sum over tokens and sequences (SkyRL on FSDP and Megatron, Tinker).
    Sum,
    /// Mean over each sequence's weighted tokens, then over an update's sequences (SkyRL on JAX).
    SeqMeanBatchMean,
}

/// In which form losses are sent to a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LossForm {
    /// By name if the service implements exactly this loss, otherwise as derivatives.
    #[default]
    Direct,
    /// As derivatives, at the cost of an extra forward pass.
    Linearised,
}

impl TinkerConfig {
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
