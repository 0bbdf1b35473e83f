//! The configuration of a run: typed TOML, unknown keys refused, defaults spelled out when written.

mod load;

use std::path::PathBuf;

pub use load::{ConfigSource, load, load_resolved, presets, suggest};
use serde::{Deserialize, Serialize};
use turnwise_credit::has::DecomposerKind;
use turnwise_credit::salt::SaltMatching;
use turnwise_credit::{CreditConfig, EstimatorConfig, RefinementConfig};
use turnwise_env::alfworld::demonstrations::Source;
use turnwise_env::alfworld::expert::SearchOrder;
use turnwise_env::alfworld::generator::GeneratorConfig;
use turnwise_model::{AdamWConfig, ModelConfig, ScheduleKind};
use turnwise_objective::ObjectiveConfig;

use crate::TrainError;
use crate::rollout::Layout;

/// Everything a run depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The preset this config started from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// Name of the run; its directory is `runs/<name>`.
    pub name: String,
    /// Seed of every random draw.
    pub seed: u64,
    /// The world.
    pub env: EnvConfig,
    /// How observations become prompts and responses become actions.
    pub prompt: PromptConfig,
    /// What is trained.
    pub policy: PolicyConfig,
    /// The warm start on demonstrations.
    pub sft: SftConfig,
    /// How trajectories are sampled.
    pub rollout: RolloutConfig,
    /// How turns get their advantages.
    pub credit: CreditConfig,
    /// How advantages become a loss.
    pub objective: ObjectiveConfig,
    /// The optimiser.
    pub optimizer: AdamWConfig,
    /// The loop.
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
            train: TrainConfig::default(),
            eval: EvalConfig::default(),
        }
    }
}

/// Which world, and how episodes end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EnvConfig {
    /// The environment.
    pub name: String,
    /// Official games: a folder, one file or an archive. Without it the embedded generator makes the world.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<PathBuf>,
    /// The generated world; not used with `data`.
    pub world: GeneratorConfig,
    /// Split that is trained on.
    pub split: String,
    /// Turns after which an episode is cut off.
    pub max_turns: usize,
    /// Factor on the environment's rewards (ALFWorld gives 1 for success; verl-agent uses 10).
    pub reward_scale: f64,
}

impl Default for EnvConfig {
    fn default() -> Self {
        Self {
            name: "alfworld".into(),
            data: None,
            world: GeneratorConfig::default(),
            split: "train".into(),
            max_turns: 50,
            reward_scale: 1.0,
        }
    }
}

/// When a response counts as a valid action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Validity {
    /// The response has the asked-for form.
    #[default]
    Format,
    /// The action is one of the admissible ones too.
    Admissible,
}

/// Prompts and parsing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PromptConfig {
    /// Name of an embedded template, or the path of a template file.
    pub template: String,
    /// Sequence layout.
    pub layout: Layout,
    /// Earlier turns that a windowed prompt shows.
    pub history: usize,
    /// When an action is valid.
    pub valid: Validity,
    /// Parse responses exactly as verl-agent does, quirks included.
    pub verl_agent_parsing: bool,
}

impl Default for PromptConfig {
    fn default() -> Self {
        Self {
            template: "alfworld-compact".into(),
            layout: Layout::Concatenated,
            history: 2,
            valid: Validity::Format,
            verl_agent_parsing: false,
        }
    }
}

/// What is trained.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyConfig {
    /// Folder of a model (`config.json`, `tokenizer.json`, `model.safetensors`) or of a run's
    /// checkpoint. Without it a small model is made from scratch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<PathBuf>,
    /// The model from scratch.
    pub scratch: ScratchConfig,
}

/// Shape of a model from scratch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScratchConfig {
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Decoder layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub key_value_heads: usize,
    /// Width inside the gated MLP.
    pub intermediate_size: usize,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Standard deviation of the initial weights.
    pub initializer_range: f64,
    /// Most whole pieces in the vocabulary, besides the 256 bytes.
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
            model_type: "qwen2".into(),
            vocab_size,
            hidden_size: self.hidden_size,
            intermediate_size: self.intermediate_size,
            num_hidden_layers: self.layers,
            num_attention_heads: self.heads,
            num_key_value_heads: self.key_value_heads,
            max_position_embeddings: max_context,
            rms_norm_eps: 1e-6,
            rope_theta: self.rope_theta,
            tie_word_embeddings: true,
            initializer_range: self.initializer_range,
        }
    }
}

/// The supervised warm start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SftConfig {
    /// Updates; 0 leaves the warm start out.
    pub steps: u64,
    /// Most demonstrations that are made.
    pub demonstrations: usize,
    /// Who plays: the expert that knows only what it has seen, or the games' walkthroughs, which know all.
    pub source: Source,
    /// In which order the expert searches.
    pub order: SearchOrder,
    /// Before a step, an action that the world does not understand is inserted with this probability,
    /// without loss on it, so that the policy has seen failures.
    pub injection: f64,
    /// Tokens in one update.
    pub batch_tokens: usize,
    /// Weight of the mean loss on everything but actions, beside the mean loss on actions.
    pub observation_weight: f64,
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Steps of linear warm-up.
    pub warmup: u64,
    /// Form of the schedule after the warm-up.
    pub schedule: ScheduleKind,
    /// A checkpoint every so many updates (and one at the end).
    pub checkpoint_every: u64,
}

impl Default for SftConfig {
    fn default() -> Self {
        Self {
            steps: 0,
            demonstrations: 13_000,
            source: Source::Expert,
            order: SearchOrder::Likely,
            injection: 0.06,
            batch_tokens: 2_000,
            observation_weight: 0.1,
            learning_rate: 2e-3,
            warmup: 50,
            schedule: ScheduleKind::default(),
            checkpoint_every: 200,
        }
    }
}

/// How trajectories are sampled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RolloutConfig {
    /// Tasks in a step.
    pub groups: usize,
    /// Trajectories of each task.
    pub group_size: usize,
    /// Softmax temperature.
    pub temperature: f32,
    /// Smallest probability mass that is sampled from.
    pub top_p: f32,
    /// Number of most probable tokens that are sampled from; 0 for all.
    pub top_k: usize,
    /// Longest response in tokens.
    pub max_response_tokens: usize,
    /// Longest sequence in tokens.
    pub max_context: usize,
    /// Samplers side by side, each on its own thread. Part of what is computed, not of the machine.
    pub lanes: usize,
    /// Trajectories under way at once in each lane.
    pub slots: usize,
}

impl Default for RolloutConfig {
    fn default() -> Self {
        Self {
            groups: 16,
            group_size: 8,
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            max_response_tokens: 512,
            max_context: 2560,
            lanes: 2,
            slots: 64,
        }
    }
}

/// The training loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainConfig {
    /// Steps of reinforcement learning, each a rollout and its updates.
    pub steps: u64,
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Updates of linear warm-up.
    pub warmup: u64,
    /// Form of the schedule after the warm-up.
    pub schedule: ScheduleKind,
    /// Updates per pass over a rollout.
    pub minibatches: usize,
    /// Passes over a rollout.
    pub epochs: usize,
    /// Leave trajectories out of the update whose advantages are all zero. (With a KL or entropy term
    /// in the loss they are kept, because they have a gradient then.)
    pub skip_zero_advantage: bool,
    /// Compute the old log-probabilities anew with the learner instead of taking the sampler's.
    pub recompute_old_logprobs: bool,
    /// Tokens run through the model at once in each lane.
    pub micro_batch_tokens: usize,
    /// Data-parallel lanes. Part of what is computed, not of the machine.
    pub lanes: usize,
    /// Keep only layer inputs for the backward pass and compute the rest again.
    pub recompute_layers: bool,
    /// A checkpoint every so many steps (and one at the end).
    pub checkpoint_every: u64,
    /// Checkpoints that are kept; 0 keeps all. Those of a phase's end are always kept.
    pub keep_last: usize,
    /// Write every trajectory of every step.
    pub save_trajectories: bool,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            steps: 100,
            learning_rate: 1e-6,
            warmup: 0,
            schedule: ScheduleKind::Constant,
            minibatches: 1,
            epochs: 1,
            skip_zero_advantage: true,
            recompute_old_logprobs: false,
            micro_batch_tokens: 4096,
            lanes: 2,
            recompute_layers: false,
            checkpoint_every: 10,
            keep_last: 2,
            save_trajectories: true,
        }
    }
}

/// The evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EvalConfig {
    /// Splits that are evaluated.
    pub splits: Vec<String>,
    /// Tasks per split, the first in content-hash order; 0 takes all.
    pub tasks: usize,
    /// Softmax temperature; 0 is greedy.
    pub temperature: f32,
    /// Evaluate every so many steps of reinforcement learning, besides before and after; 0 never.
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

    /// Refuses what cannot run, before any long work starts.
    pub fn check(&self) -> Result<(), TrainError> {
        let fail = |key: &str, reason: &str| {
            Err(TrainError::Config { origin: key.to_owned(), reason: reason.to_owned() })
        };
        if self.env.name != "alfworld" {
            return Err(TrainError::Config {
                origin: "env.name".into(),
                reason: format!("unknown environment `{}`; there is: alfworld", self.env.name),
            });
        }
        if self.name.is_empty() || self.name.contains(['/', '\\']) || self.name.starts_with('.') {
            return fail("name", "must be a plain folder name");
        }
        for (key, value) in [
            ("env.max_turns", self.env.max_turns),
            ("rollout.groups", self.rollout.groups),
            ("rollout.group_size", self.rollout.group_size),
            ("rollout.max_response_tokens", self.rollout.max_response_tokens),
            ("rollout.max_context", self.rollout.max_context),
            ("rollout.lanes", self.rollout.lanes),
            ("rollout.slots", self.rollout.slots),
            ("train.minibatches", self.train.minibatches),
            ("train.epochs", self.train.epochs),
            ("train.lanes", self.train.lanes),
            ("train.micro_batch_tokens", self.train.micro_batch_tokens),
        ] {
            if value == 0 {
                return fail(key, "must be at least 1");
            }
        }
        if self.rollout.temperature <= 0.0 || !self.rollout.temperature.is_finite() {
            return fail(
                "rollout.temperature",
                "must be above 0 (greedy sampling has no log-probabilities to learn from)",
            );
        }
        if self.eval.temperature < 0.0 || !self.eval.temperature.is_finite() {
            return fail("eval.temperature", "must be 0 (greedy) or above");
        }
        if !(self.rollout.top_p > 0.0 && self.rollout.top_p <= 1.0) {
            return fail("rollout.top_p", "must be in (0, 1]");
        }
        self.check_methods()?;
        if !(0.0..1.0).contains(&self.sft.injection) {
            return fail("sft.injection", "must be in [0, 1)");
        }
        if self.sft.steps > 0 && self.sft.demonstrations == 0 {
            return fail("sft.demonstrations", "must be at least 1 when sft.steps is");
        }
        for (key, rate) in
            [("sft.learning_rate", self.sft.learning_rate), ("train.learning_rate", self.train.learning_rate)]
        {
            if rate < 0.0 || !rate.is_finite() {
                return fail(key, "must be a number from 0 up");
            }
        }
        Ok(())
    }

    /// Refuses methods that need more than this trainer gives them, before anything is sampled.
    fn check_methods(&self) -> Result<(), TrainError> {
        let fail = |key: &str, reason: &str| {
            Err(TrainError::Config { origin: key.to_owned(), reason: reason.to_owned() })
        };
        turnwise_credit::Pipeline::from_config(&self.credit)?;
        self.objective.check()?;
        if matches!(self.credit.estimator, EstimatorConfig::Ppo(_)) {
            return fail(
                "credit.estimator",
                "`ppo` needs the values of a critic, which training does not have; use grpo, rloo, gigpo or hgpo",
            );
        }
        if self.credit.outliers.is_some() {
            return fail(
                "credit.outliers",
                "locates turns for STAPO's selective term, which training does not apply; leave it out",
            );
        }
        for refinement in &self.credit.refinements {
            match refinement {
                RefinementConfig::Has(has) if has.decomposer == DecomposerKind::External => {
                    return fail(
                        "credit.refinements",
                        "`has` with decomposer = \"external\" needs a decomposer of your own; use \"progressive\"",
                    );
                }
                RefinementConfig::Salt(salt) if salt.matching == SaltMatching::Embedding => {
                    return fail(
                        "credit.refinements",
                        "`salt` with matching = \"embedding\" needs an embedder of your own; use \"exact\"",
                    );
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The config as TOML, every default spelled out.
    pub fn to_toml(&self) -> Result<String, TrainError> {
        toml::to_string_pretty(self)
            .map_err(|error| TrainError::Config { origin: "config".into(), reason: error.to_string() })
    }
}
