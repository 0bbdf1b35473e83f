//! The `[rollout]` table.

use serde::{Deserialize, Serialize};
use turnwise_credit::compact::CompactFilterConfig;
use turnwise_credit::selection::SelectionConfig;

use super::{OverlongSettings, ServersConfig};

/// Layout of a trajectory's turns as token sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Every turn is its own (prompt, response) sequence; the prompt carries the last turns as text.
    Windowed,
    /// The whole trajectory is one sequence.
    Concatenated,
}

/// The treatment of a trajectory that ended through no fault of the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// It is left out of its group, before credit is assigned.
    #[default]
    Mask,
    /// It is sampled again, with other draws, and left out where that fails too often.
    Resample,
}

/// Sampling of trajectories.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RolloutConfig {
    /// Tasks in a step.
    #[schemars(range(min = 1, max = 65536))]
    pub tasks_per_step: usize,
    /// Trajectories of each task.
    #[schemars(range(min = 1, max = 4096))]
    pub group_size: usize,
    /// Softmax temperature.
    #[schemars(range(max = 100.0), extend("exclusiveMinimum" = 0.0))]
    pub temperature: f32,
    /// Smallest probability mass that is sampled from.
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0))]
    pub top_p: f32,
    /// Number of most probable tokens that are sampled from; 0 for all.
    #[schemars(range(max = 1000000000))]
    pub top_k: usize,
    /// Longest response in tokens.
    #[schemars(range(min = 1, max = 1000000))]
    pub max_response_tokens: usize,
    /// Longest sequence in tokens.
    #[schemars(range(min = 2, max = 10000000))]
    pub max_context: usize,
    /// Samplers side by side, each on its own thread. Part of what is computed, not of the machine.
    #[schemars(range(min = 1, max = 256))]
    pub lanes: usize,
    /// Trajectories under way at once in each lane.
    #[schemars(range(min = 1, max = 65536))]
    pub max_num_seqs: usize,
    /// Selection of the sampled groups that are trained on: all, DAPO's dynamic sampling, or rejection.
    pub selection: SelectionConfig,
    /// DeepSWE's compact filtering: trajectories that a limit cut off, or that repeat themselves, have no gradient. They count in their group's
    /// baseline and in the means of the loss. Absent: off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compact_filter: Option<CompactFilterConfig>,
    /// DAPO's soft penalty on responses near the length limit. Absent: off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlong: Option<OverlongSettings>,
    /// Threads that reset and step environments which have to be waited for; instantaneous ones need none.
    #[schemars(range(min = 1, max = 4096))]
    pub env_threads: usize,
    /// The longest that one reset or step of such an environment may take in seconds, retries included; steps that are made together
    /// have the sum of theirs. A world over JSON lines has `env.timeout_s` in its place, which counts from a call's turn.
    #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
    pub env_timeout_s: f64,
    /// Times that a reset or step that failed in a transient way is made again, with growing waits.
    #[schemars(range(max = 100))]
    pub env_retries: u32,
    /// Treatment of a trajectory that ended through no fault of the policy: `mask` leaves it out of its group,
    /// `resample` samples it again first.
    pub on_error: OnError,
    /// Times that such a trajectory is sampled again at most: by `on_error = "resample"`, and in evaluations, whatever
    /// `on_error` says.
    #[schemars(range(max = 100))]
    pub max_resamples: u64,
    /// Steps that a rollout may be older than the weights it trains. 0: a step's rollout begins when the updates of the step
    /// before it are done. With N the rollouts of the next N steps are under way while a step is updated, each sampled
    /// as a whole by the weights of N steps before it is trained on.
    #[schemars(range(max = 64))]
    pub max_staleness: u64,
    /// Inference servers (vLLM, SGLang) that sample in the place of this process. Needs a program built with
    /// `--features remote`. Absent: this process samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<ServersConfig>,
}

impl Default for RolloutConfig {
    fn default() -> Self {
        Self {
            tasks_per_step: 16,
            group_size: 8,
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            max_response_tokens: 512,
            max_context: 2560,
            lanes: 2,
            max_num_seqs: 64,
            selection: SelectionConfig::All,
            compact_filter: None,
            overlong: None,
            env_threads: 16,
            env_timeout_s: 120.0,
            env_retries: 2,
            on_error: OnError::Mask,
            max_resamples: 2,
            max_staleness: 0,
            engine: None,
        }
    }
}
