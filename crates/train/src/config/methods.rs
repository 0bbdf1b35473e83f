//! Settings of the critic, the decomposer and overlong shaping.

use serde::{Deserialize, Serialize};
use turnwise_credit::overlong::OverlongConfig;
use turnwise_decompose::JudgeConfig;
use turnwise_decompose::turnrd::TurnRdConfig;
use turnwise_model::LoraConfig;
use turnwise_objective::ValueConfig;

/// External decomposer for credit: `{ kind = "turnrd", ... }`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum DecomposerConfig {
    /// No decomposer.
    #[default]
    None,
    /// An LLM with an OpenAI-compatible API scores each turn.
    Judge(JudgeConfig),
    /// A network that learns from earlier rounds which turns earn returns.
    Turnrd(TurnRdSettings),
}

/// TurnRD in the training loop (HAS, algorithm 1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TurnRdSettings {
    /// Training steps per round. The network is trained at the end of each round. The paper's round
    /// (80 tasks, 8 trajectories each) corresponds to one step of 80 groups of 8.
    #[schemars(range(min = 1, max = 1000000000))]
    pub round_steps: u64,
    /// Hold out one of every N records to measure the fit; 0: none.
    #[schemars(range(max = 1000000000))]
    pub hold_out: u64,
    /// Maximum number of tokens whose hidden states are averaged, for each turn and for the goal.
    /// If a turn's observation and response are both long, each gets half of this number.
    #[schemars(range(min = 1, max = 1000000))]
    pub pool_tokens: usize,
    /// Settings of the network and of its training.
    pub network: TurnRdConfig,
}

impl TurnRdSettings {
    /// Returns the round of a step (from 0).
    pub(crate) fn round_of(&self, step: u64) -> u32 {
        u32::try_from(step / self.round_steps).unwrap_or(u32::MAX)
    }
}

impl Default for TurnRdSettings {
    fn default() -> Self {
        Self { round_steps: 1, hold_out: 10, pool_tokens: 512, network: TurnRdConfig::default() }
    }
}

/// PPO's critic: a value head on a copy of the policy's layers, or on an adapter of the policy's
/// base model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CriticConfig {
    /// Learning rate, constant after warm-up.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub learning_rate: f64,
    /// Linear warm-up, in updates.
    #[schemars(range(max = 1000000000))]
    pub warmup: u64,
    /// How far a value may move from its old value before its loss is clipped.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub clip: f64,
    /// Initial steps that train only the critic.
    #[schemars(range(max = 1000000000))]
    pub warmup_steps: u64,
    /// Train an adapter and the value head instead of all weights. Absent: like `policy.lora`, with
    /// a shared base.
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
    /// Number of tokens before the limit over which the penalty grows. Absent: a fifth of the
    /// limit, as in the paper.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1_000_000))]
    pub buffer: Option<usize>,
    /// Penalty at the limit.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub penalty: f64,
}

impl Default for OverlongSettings {
    fn default() -> Self {
        Self { buffer: None, penalty: 1.0 }
    }
}

impl OverlongSettings {
    /// Returns the shaping for a response limit.
    pub fn shaping(&self, limit: usize) -> OverlongConfig {
        OverlongConfig { limit, buffer: self.buffer.unwrap_or(limit / 5), penalty: self.penalty }
    }
}
