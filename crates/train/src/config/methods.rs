//! Parts of training that only some methods need: a critic, a decomposer, shaped responses.

use serde::{Deserialize, Serialize};
use turnwise_credit::overlong::OverlongConfig;
use turnwise_decompose::JudgeConfig;
use turnwise_decompose::turnrd::TurnRdConfig;
use turnwise_model::LoraConfig;
use turnwise_objective::ValueConfig;

/// A decomposer outside of the credit pipeline: `{ kind = "turnrd", ... }`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum DecomposerConfig {
    /// There is none.
    #[default]
    None,
    /// A language model behind an OpenAI-compatible endpoint scores every turn.
    Judge(JudgeConfig),
    /// A network learns from all rounds before which turns earn returns.
    Turnrd(TurnRdSettings),
}

/// TurnRD inside the loop (HAS, algorithm 1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TurnRdSettings {
    /// Steps of reinforcement learning in a round; the network is frozen inside a round and trained at
    /// its end. The paper's round, 80 tasks with 8 trajectories each, is one step of 80 groups of 8.
    #[schemars(range(min = 1, max = 1000000000))]
    pub round_steps: u64,
    /// One record in so many is held out of training, to measure the fit; 0 holds none out.
    #[schemars(range(max = 1000000000))]
    pub hold_out: u64,
    /// Most tokens of a turn (its observation and its response, a half of them each where both are longer), and of the goal,
    /// whose hidden states are averaged.
    #[schemars(range(min = 1, max = 1000000))]
    pub pool_tokens: usize,
    /// The network and its training.
    pub network: TurnRdConfig,
}

impl TurnRdSettings {
    /// The round that a step (from 0) belongs to.
    pub fn round_of(&self, step: u64) -> u32 {
        u32::try_from(step / self.round_steps).unwrap_or(u32::MAX)
    }
}

impl Default for TurnRdSettings {
    fn default() -> Self {
        Self { round_steps: 1, hold_out: 10, pool_tokens: 512, network: TurnRdConfig::default() }
    }
}

/// PPO's critic: a copy of the policy's layers with a value head, trained in the same loop; or an adapter
/// with a value head on the policy's own base.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CriticConfig {
    /// Learning rate; constant after the warm-up.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub learning_rate: f64,
    /// Updates of linear warm-up.
    #[schemars(range(max = 1000000000))]
    pub warmup: u64,
    /// Distance that a value may move from the old one before its loss stops falling.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub clip: f64,
    /// Steps in which the critic alone is trained, so that the first advantages mean something.
    #[schemars(range(max = 1000000000))]
    pub warmup_steps: u64,
    /// Train an adapter and the value head in the place of all weights. Absent: as `policy.lora`, so that
    /// there is one base in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoraConfig>,
}

impl Default for CriticConfig {
    fn default() -> Self {
        Self {
            learning_rate: 1e-5,
            warmup: 0,
            clip: ValueConfig::default().clip,
            warmup_steps: 0,
            lora: None,
        }
    }
}

/// DAPO's overlong shaping; the limit is `rollout.max_response_tokens`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OverlongSettings {
    /// Tokens before the limit at which the penalty begins. Absent: a fifth of the limit, as in the paper
    /// (4,096 of 20,480).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1_000_000))]
    pub buffer: Option<usize>,
    /// Penalty of a response of the full length.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub penalty: f64,
}

impl Default for OverlongSettings {
    fn default() -> Self {
        Self { buffer: None, penalty: 1.0 }
    }
}

impl OverlongSettings {
    /// The shaping under a limit.
    pub fn shaping(&self, limit: usize) -> OverlongConfig {
        OverlongConfig { limit, buffer: self.buffer.unwrap_or(limit / 5), penalty: self.penalty }
    }
}
