//! The config of a run as typed TOML. Unknown keys are rejected.

mod amend;
mod describe;
mod difference;
mod engine;
mod env;
mod layers;
mod learner;
mod load;
mod methods;
#[cfg(test)]
mod nonsense;
mod presets;
mod prompt_rules;
mod registries;
mod rollout;
mod rules;
mod scratch;
mod service_rules;
mod sft_data;
mod switches;
#[cfg(test)]
mod tests;
mod train;
mod vision_rules;
mod warnings;

use std::path::PathBuf;

pub(crate) use amend::check_fixed;
pub use describe::{reference_page, schema};
pub use difference::{Difference, differences, list_differences};
pub use engine::{EntropyKind, ServedWeights, ServerKind, ServerRoute, ServersConfig};
pub use env::EnvConfig;
pub(crate) use env::env_schema;
pub use learner::{LossForm, PolicyLearnerConfig, ReductionSetting, TinkerConfig};
pub use load::{ConfigPurpose, ConfigSource, load, overridden};
pub use methods::{CriticConfig, DecomposerConfig, OverlongSettings, TurnRdSettings};
pub use presets::{config_summary, presets, whole_configs};
pub use registries::Registries;
pub use rollout::{Layout, OnError, RolloutConfig};
pub use rules::check_run_name;
pub use scratch::{ScratchConfig, ScratchVisionConfig};
use serde::{Deserialize, Serialize};
pub use sft_data::{SftDataConfig, TrainOn};
pub use train::{Shuffle, TrainConfig};
use turnwise_credit::CreditConfig;
use turnwise_env::registry::Registry;
pub use turnwise_methods::Methods;
use turnwise_model::{AdamWConfig, Compute, Device, LoraConfig, ScheduleKind};
use turnwise_objective::ObjectiveConfig;
pub use turnwise_settings::suggest;

use crate::TrainError;

/// Config of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Preset to extend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// Name of the run, stored in `runs/<name>`.
    pub name: String,
    /// Seed of all random draws.
    pub seed: u64,
    /// The environment. The feature `remote` adds `openenv`, `mcp` and `appworld`
    /// (docs/worlds/external.md).
    pub env: EnvConfig,
    /// Prompts and response parsing.
    pub prompt: PromptConfig,
    /// The trained model.
    pub policy: PolicyConfig,
    /// SFT on demonstrations before RL.
    pub sft: SftConfig,
    /// Sampling of trajectories.
    pub rollout: RolloutConfig,
    /// Credit assignment: the advantages.
    pub credit: CreditConfig,
    /// The loss.
    pub objective: ObjectiveConfig,
    /// The optimizer.
    pub optimizer: AdamWConfig,
    /// External decomposer, for the estimator `has` with `decomposer = "external"`.
    pub decomposer: DecomposerConfig,
    /// The critic, if the estimator needs one.
    pub critic: CriticConfig,
    /// The training loop.
    pub train: TrainConfig,
    /// The evaluation.
    pub eval: EvalConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            preset: None,
            name: "run".into(),
            seed: 0,
            env: EnvConfig::default(),
            prompt: PromptConfig::default(),
            policy: PolicyConfig::default(),
            sft: SftConfig::default(),
            rollout: RolloutConfig::default(),
            credit: CreditConfig::default(),
            objective: ObjectiveConfig::default(),
            optimizer: AdamWConfig::default(),
            decomposer: DecomposerConfig::default(),
            critic: CriticConfig::default(),
            train: TrainConfig::default(),
            eval: EvalConfig::default(),
        }
    }
}

/// Which responses count as valid actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Validity {
    /// The required format.
    #[default]
    Format,
    /// Responses in the required format. If the environment lists its admissible actions, the
    /// action must also be one of them.
    Admissible,
    /// Responses whose action the environment accepts (in Sokoban, as in verl-agent, any response
    /// with an action word).
    Understood,
}

/// `auto`, `on` or `off`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AutoOnOff {
    /// On or off, depending on the model's files.
    #[default]
    Auto,
    /// On; an error if the model does not support it.
    On,
    /// Off.
    Off,
}

/// Prompts and response parsing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PromptConfig {
    /// Name of a built-in template, or path of a template file.
    #[schemars(length(min = 1))]
    pub template: String,
    /// How turns become token sequences.
    pub layout: Layout,
    /// Show observations as pictures, without history. Needs the template's section `[pictures]`,
    /// `env.pictures`, `layout = "windowed"` and a vision tower (docs/vision.md).
    pub pictures: bool,
    /// Number of earlier turns that a windowed prompt shows.
    #[schemars(range(max = 100000))]
    pub history: usize,
    /// With `layout = "concatenated"`: prompt tokens above which the policy summarizes the earlier
    /// turns (docs/compaction.md). Absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000000))]
    pub compact_after: Option<usize>,
    /// Maximum tokens of a summary.
    #[schemars(range(min = 1, max = 1000000))]
    pub max_summary_tokens: usize,
    /// Apply the model's chat template (prompts as user messages, responses as replies). `auto`:
    /// apply it if the model has one.
    pub chat: AutoOnOff,
    /// System message. Absent: the chat template may insert its own system message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// `enable_thinking` for chat templates that support it (Qwen3); `auto`: the template's
    /// default.
    pub thinking: AutoOnOff,
    /// Which responses count as valid actions.
    pub validity: Validity,
}

impl Default for PromptConfig {
    fn default() -> Self {
        Self {
            template: "alfworld-compact".into(),
            layout: Layout::Concatenated,
            pictures: false,
            history: 2,
            compact_after: None,
            max_summary_tokens: 256,
            chat: AutoOnOff::Auto,
            system: None,
            thinking: AutoOnOff::Auto,
            validity: Validity::Format,
        }
    }
}

/// The trained model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyConfig {
    /// A folder with a model (`config.json`, `tokenizer.json`, safetensors), adapter, run or
    /// checkpoint; or a hub model, `ORG/NAME` or `ORG/NAME@REVISION`. Absent: a small model from
    /// scratch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<PathBuf>,
    /// What trains the policy: this process or a service.
    pub learner: PolicyLearnerConfig,
    /// Device for training and sampling: `cpu`, or `cuda` (needs a build with the feature `cuda`
    /// and a GPU with compute capability 8.0 or newer).
    pub device: Device,
    /// Device memory in GiB for the memory plan. Absent: read from the device. Set it for
    /// `--dry-run` on a machine without the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1e6), extend("exclusiveMinimum" = 0.0))]
    pub device_memory: Option<f64>,
    /// Precision of matrix products on the CPU: `f32`, or `bf16` with weights and sums in `f32`, as
    /// on GPUs.
    pub compute: Compute,
    /// Compute a micro-batch's shared prefixes only once; results differ by rounding. Prefixes are
    /// never shared with adapter dropout or on `cuda`.
    pub share_prefixes: bool,
    /// Train a LoRA adapter and freeze the model. Absent: train all weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoraConfig>,
    /// Shape of a model from scratch.
    pub scratch: ScratchConfig,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self {
            model: None,
            learner: PolicyLearnerConfig::default(),
            device: Device::default(),
            device_memory: None,
            compute: Compute::default(),
            share_prefixes: true,
            lora: None,
            scratch: ScratchConfig::default(),
        }
    }
}

/// SFT on demonstrations before RL.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SftConfig {
    /// Number of updates. 0: no SFT or, if `sft.data` is set, as many updates as `sft.data.epochs`
    /// needs.
    #[schemars(range(max = 1000000000))]
    pub steps: u64,
    /// Your own conversations. Absent: demonstrations of the environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<SftDataConfig>,
    /// Maximum number of demonstrations.
    #[schemars(range(max = 10000000))]
    pub demonstrations: usize,
    /// Probability that an invalid action, which has no loss, is inserted before a step, so that
    /// the policy sees failures. JSON-lines and server environments insert no invalid actions.
    // With higher values hardly any demonstration reaches its goal.
    #[schemars(range(min = 0.0, max = 0.9))]
    pub invalid_action_prob: f64,
    /// Tokens per update.
    #[schemars(range(min = 1, max = 100000000))]
    pub batch_tokens: usize,
    /// Weight of the mean loss on non-action tokens of demonstrations; actions have weight 1. In
    /// conversations (`sft.data`), only assistant messages have a loss.
    #[schemars(range(min = 0.0, max = 1000.0))]
    pub observation_weight: f64,
    /// Peak learning rate.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub learning_rate: f64,
    /// Linear warm-up, in steps.
    #[schemars(range(max = 1000000000))]
    pub warmup: u64,
    /// Schedule after the warm-up.
    pub schedule: ScheduleKind,
    /// Updates between checkpoints; the last update also writes one.
    #[schemars(range(max = 1000000000))]
    pub checkpoint_every: u64,
}

impl Default for SftConfig {
    fn default() -> Self {
        Self {
            steps: 0,
            data: None,
            demonstrations: 13_000,
            invalid_action_prob: 0.06,
            batch_tokens: 2_000,
            observation_weight: 0.1,
            learning_rate: 2e-3,
            warmup: 50,
            schedule: ScheduleKind::default(),
            checkpoint_every: 200,
        }
    }
}

/// The evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EvalConfig {
    /// Splits to evaluate.
    pub splits: Vec<String>,
    /// Number of tasks per split: the first ones in content-hash order; 0: all.
    #[schemars(range(max = 1000000000))]
    pub tasks: usize,
    /// Sampling temperature; 0 is greedy.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub temperature: f32,
    /// Training steps between evaluations; 0: no evaluations during training. Evaluations before
    /// and after training always run.
    #[schemars(range(max = 1000000000))]
    pub every: u64,
}

impl Default for EvalConfig {
    fn default() -> Self {
        Self {
            splits: vec!["valid_seen".into(), "valid_unseen".into()],
            tasks: 0,
            temperature: 0.0,
            every: 0,
        }
    }
}

impl Config {
    /// Returns whether the run includes SFT.
    pub fn has_sft(&self) -> bool {
        self.sft.steps > 0 || self.sft.data.is_some()
    }

    /// Returns whether the run plays episodes (SFT on conversations alone does not).
    pub fn needs_world(&self) -> bool {
        self.train.steps > 0 || self.sft.data.is_none()
    }

    pub(super) fn has_conversations(&self, environments: &Registry) -> bool {
        environments.kind(&self.env.kind).is_ok_and(turnwise_env::registry::Kind::has_conversations)
    }

    /// Returns the splits in use, without duplicates.
    pub fn splits(&self) -> Vec<&str> {
        let mut splits = vec![self.env.split.as_str()];
        for split in &self.eval.splits {
            if !splits.contains(&split.as_str()) {
                splits.push(split);
            }
        }
        splits
    }

    /// Returns the critic's adapter settings, by default those of the policy; `None` if all weights
    /// of the critic are trained.
    pub(crate) fn critic_lora(&self) -> Option<&LoraConfig> {
        self.critic.lora.as_ref().or(self.policy.lora.as_ref())
    }

    /// Returns the config as TOML, with all defaults.
    ///
    /// # Errors
    /// Fails on values that TOML cannot represent, such as null or a non-UTF-8 path.
    pub fn to_toml(&self) -> Result<String, TrainError> {
        toml::to_string_pretty(self)
            .map_err(|error| TrainError::Config { origin: "config".into(), reason: error.to_string() })
    }
}
