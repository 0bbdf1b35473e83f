//! The configuration of a run: typed TOML, unknown keys refused, defaults spelled out when written.
//!
//! | file | subject |
//! |---|---|
//! | `mod.rs` | the tables and their defaults; the range of every setting stands at its field |
//! | `env.rs`, `rollout.rs`, `engine.rs` | the tables of the world, of rollouts and of the servers that sample |
//! | `learner.rs` | the learner of the policy: this process or a service |
//! | `methods.rs` | tables of some methods: critic, decomposer, overlong shaping |
//! | `load.rs` | from sources to a checked config; which source wins |
//! | `layers.rs` | sources laid one over the other, with the origin of every setting |
//! | `presets.rs` | presets: methods by name, and whole configs |
//! | `amend.rs` | settings that change when a run is resumed |
//! | `train.rs` | the table of the training loop |
//! | `difference.rs` | the settings in which two configs differ |
//! | `renamed.rs` | keys of earlier versions |
//! | `rules.rs`, `service_rules.rs` | rules between settings, and those of a policy that a service trains |
//! | `switches.rs` | settings that are read only where another one is set |
//! | `describe.rs` | JSON Schema, annotated TOML, reference page |

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
mod renamed;
mod rollout;
mod rules;
mod service_rules;
mod switches;
#[cfg(test)]
mod tests;
mod train;

use std::path::PathBuf;

pub use amend::amend;
pub use describe::{reference_page, schema};
pub use difference::{Difference, differences, list_differences};
pub use engine::{EntropyKind, ServedWeights, ServerKind, ServerRoute, ServersConfig};
pub use env::EnvConfig;
pub(crate) use env::env_schema;
pub use layers::Origins;
pub use learner::{LossForm, PolicyLearnerConfig, ReductionSetting, TinkerConfig};
pub use load::{
    ConfigSource, load, load_resolved, load_resolved_with, load_to_play_with, load_with, overridden,
};
pub use methods::{CriticConfig, DecomposerConfig, OverlongSettings, TurnRdSettings};
pub use presets::{presets, whole_configs};
pub use rollout::{Layout, OnError, RolloutConfig};
use serde::{Deserialize, Serialize};
pub use train::{Shuffle, TrainConfig};
use turnwise_credit::{CreditConfig, Pipeline};
pub use turnwise_methods::Methods;
use turnwise_model::{AdamWConfig, Compute, Device, LoraConfig, ModelConfig, ScheduleKind};
use turnwise_objective::{Loss, ObjectiveConfig};
pub use turnwise_settings::suggest;

use crate::TrainError;

/// Everything a run depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The preset this config started from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// Name of the run; its directory is `runs/<name>`.
    pub name: String,
    /// Seed of every random draw.
    pub seed: u64,
    /// The world. Builds with the feature `remote` also have `openenv`, `mcp` and `appworld` (docs/worlds/external.md).
    pub env: EnvConfig,
    /// Prompts made of observations, and actions read from responses.
    pub prompt: PromptConfig,
    /// The policy: the model that is trained.
    pub policy: PolicyConfig,
    /// The warm start on demonstrations.
    pub sft: SftConfig,
    /// Sampling of trajectories.
    pub rollout: RolloutConfig,
    /// Credit: the advantages of turns.
    pub credit: CreditConfig,
    /// Objective: the loss made of advantages.
    pub objective: ObjectiveConfig,
    /// The optimiser.
    pub optimizer: AdamWConfig,
    /// Source of the per-turn credits of `has` with `decomposer = "external"`.
    pub decomposer: DecomposerConfig,
    /// The critic, where the estimator needs one.
    pub critic: CriticConfig,
    /// The loop.
    pub train: TrainConfig,
    /// The evaluation.
    pub eval: EvalConfig,
    /// The methods that `credit` and `objective` may name; not part of the text.
    #[serde(skip)]
    #[schemars(skip)]
    pub methods: Methods,
    /// Origins of the settings, for errors that are found later; not part of the text.
    #[serde(skip)]
    #[schemars(skip)]
    pub origins: Origins,
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
            methods: Methods::default(),
            origins: Origins::default(),
        }
    }
}

impl Config {
    /// Credit as a pipeline.
    ///
    /// # Errors
    /// A method that is not known, or a setting that cannot work.
    pub fn pipeline(&self) -> Result<Pipeline, TrainError> {
        Ok(Pipeline::with_registry(&self.credit, &self.methods.credit)?)
    }

    /// The loss with its terms.
    ///
    /// # Errors
    /// A term that is not known, or a setting that cannot work.
    pub fn loss(&self) -> Result<Loss, TrainError> {
        Ok(Loss::new(&self.objective, &self.methods.objective)?)
    }
}

/// When a response counts as a valid action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Validity {
    /// The response has the asked-for form.
    #[default]
    Format,
    /// The action is one of the admissible ones too, where the world lists any.
    Admissible,
    /// The world understood the action too (Sokoban: one of its words occurs, verl-agent's rule there).
    Understood,
}

/// `auto`, `on` or `off`: a setting that can be left to the model's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AutoOnOff {
    /// As the model's files say.
    #[default]
    Auto,
    /// Yes, or an error.
    On,
    /// No.
    Off,
}

/// Prompts and parsing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PromptConfig {
    /// Name of an embedded template, or the path of a template file.
    #[schemars(length(min = 1))]
    pub template: String,
    /// Sequence layout.
    pub layout: Layout,
    /// Earlier turns that a windowed prompt shows.
    #[schemars(range(max = 100000))]
    pub history: usize,
    /// Wrap prompts in the model's chat template: every prompt is what the user says, every response a reply. `auto`
    /// does so where the model has one.
    pub chat: AutoOnOff,
    /// System message of the chat. Without it the chat template may put in its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// `enable_thinking` for the chat templates that read it (Qwen3); `auto` leaves it to the template.
    pub thinking: AutoOnOff,
    /// When an action is valid.
    pub valid: Validity,
}

impl Default for PromptConfig {
    fn default() -> Self {
        Self {
            template: "alfworld-compact".into(),
            layout: Layout::Concatenated,
            history: 2,
            chat: AutoOnOff::Auto,
            system: None,
            thinking: AutoOnOff::Auto,
            valid: Validity::Format,
        }
    }
}

/// The policy: the model that is trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyConfig {
    /// Folder of a model (`config.json`, `tokenizer.json`, `model.safetensors` or its shards), of an adapter, of a
    /// run or of its checkpoint, or a model of the Hugging Face hub, as `ORG/NAME` or `ORG/NAME@REVISION`. Without
    /// it a small model is made from scratch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<PathBuf>,
    /// Learner of the policy: this process (`native`), or a service with the Tinker interface (`tinker`).
    pub learner: PolicyLearnerConfig,
    /// Device of training and sampling: `cpu`, or `cuda` (a program built with that feature, and an NVIDIA
    /// device of compute capability 8.0 or newer).
    pub device: Device,
    /// Memory of the device in GiB, which the memory plan is held against. Absent: what the device says, where there is
    /// one; with it a run is planned (`--dry-run`) where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1e6), extend("exclusiveMinimum" = 0.0))]
    pub device_memory: Option<f64>,
    /// Number format of matrix products in training and sampling on the CPU: `f32`, or `bf16` with sums and weights in
    /// `f32`. A device always takes `bf16` so.
    pub compute: Compute,
    /// Compute a prefix that sequences of a micro-batch share (a group's prompt, a template's head) once, in training and
    /// in the passes beside it. Results differ by rounding. An adapter's dropout, which is drawn for each sequence by
    /// itself, and `cuda` compute every sequence in full.
    pub share_prefixes: bool,
    /// Train a low-rank adapter and leave the model's own weights as they are. Absent: all weights are trained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoraConfig>,
    /// The model from scratch.
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

/// Shape of a model from scratch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ScratchConfig {
    /// Width of the residual stream.
    #[schemars(range(min = 2, max = 16384))]
    pub hidden_size: usize,
    /// Decoder layers.
    #[schemars(range(min = 1, max = 256))]
    pub layers: usize,
    /// Query heads.
    #[schemars(range(min = 1, max = 256))]
    pub heads: usize,
    /// Key/value heads.
    #[schemars(range(min = 1, max = 256))]
    pub key_value_heads: usize,
    /// Width inside the gated MLP.
    #[schemars(range(min = 1, max = 131072))]
    pub intermediate_size: usize,
    /// Base of the rotary frequencies.
    #[schemars(range(min = 1.0, max = 1e9))]
    pub rope_theta: f64,
    /// Standard deviation of the initial weights.
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0))]
    pub initializer_range: f64,
    /// Most whole pieces in the vocabulary, besides the 256 bytes.
    #[schemars(range(max = 1000000))]
    pub max_pieces: usize,
}

impl Default for ScratchConfig {
    fn default() -> Self {
        Self {
            hidden_size: 128,
            layers: 4,
            heads: 4,
            key_value_heads: 2,
            intermediate_size: 384,
            rope_theta: 10_000.0,
            initializer_range: 0.02,
            max_pieces: 1024,
        }
    }
}

impl ScratchConfig {
    /// The model config for a vocabulary and context.
    pub fn model_config(&self, vocab_size: usize, max_context: usize) -> ModelConfig {
        ModelConfig {
            vocab_size,
            hidden_size: self.hidden_size,
            intermediate_size: self.intermediate_size,
            num_hidden_layers: self.layers,
            num_attention_heads: self.heads,
            num_key_value_heads: self.key_value_heads,
            head_dim: self.hidden_size / self.heads.max(1),
            max_position_embeddings: max_context,
            rope_theta: self.rope_theta,
            tie_word_embeddings: true,
            initializer_range: self.initializer_range,
            ..ModelConfig::default()
        }
    }
}

/// The supervised warm start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SftConfig {
    /// Updates; 0 leaves the warm start out.
    #[schemars(range(max = 1000000000))]
    pub steps: u64,
    /// Most demonstrations that are made.
    #[schemars(range(max = 10000000))]
    pub demonstrations: usize,
    /// Before a step, an action that the world does not understand is inserted with this probability,
    /// without loss on it, so that the policy has seen failures. Worlds over JSON lines or behind servers insert none.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    pub invalid_action_prob: f64,
    /// Tokens in one update.
    #[schemars(range(min = 1, max = 100000000))]
    pub batch_tokens: usize,
    /// Weight of the mean loss on everything but actions, beside the mean loss on actions.
    #[schemars(range(min = 0.0, max = 1000.0))]
    pub observation_weight: f64,
    /// Peak learning rate.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub learning_rate: f64,
    /// Steps of linear warm-up.
    #[schemars(range(max = 1000000000))]
    pub warmup: u64,
    /// Form of the schedule after the warm-up.
    pub schedule: ScheduleKind,
    /// A checkpoint every so many updates (and one at the end).
    #[schemars(range(max = 1000000000))]
    pub checkpoint_every: u64,
}

impl Default for SftConfig {
    fn default() -> Self {
        Self {
            steps: 0,
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
    /// Splits that are evaluated.
    pub splits: Vec<String>,
    /// Tasks per split, the first in content-hash order; 0 takes all.
    #[schemars(range(max = 1000000000))]
    pub tasks: usize,
    /// Softmax temperature; 0 is greedy.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub temperature: f32,
    /// Evaluate every so many steps of reinforcement learning, besides before the first and after the last; 0: only these two.
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
    /// Every split that the run touches, each once.
    pub fn splits(&self) -> Vec<&str> {
        let mut splits = vec![self.env.split.as_str()];
        for split in &self.eval.splits {
            if !splits.contains(&split.as_str()) {
                splits.push(split);
            }
        }
        splits
    }

    /// The critic's adapter: its own settings or the policy's; none where all of its weights are trained.
    pub fn critic_lora(&self) -> Option<&LoraConfig> {
        self.critic.lora.as_ref().or(self.policy.lora.as_ref())
    }

    /// The config as TOML, every default spelled out.
    ///
    /// # Errors
    /// A value that TOML cannot hold: a null in a method's settings, or a path that is not UTF-8.
    pub fn to_toml(&self) -> Result<String, TrainError> {
        toml::to_string_pretty(self)
            .map_err(|error| TrainError::Config { origin: "config".into(), reason: error.to_string() })
    }
}
