//! The `[rollout]` table.

use serde::{Deserialize, Serialize};
use turnwise_credit::compact::CompactFilterConfig;
use turnwise_credit::selection::SelectionConfig;

use super::{OverlongSettings, ServersConfig};

/// How turns become token sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// One sequence per turn; its prompt shows the most recent turns as text.
    Windowed,
    /// One sequence per trajectory.
    Concatenated,
}

/// Handling of trajectories whose environment or sampler failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// Leave failed trajectories out of their groups before credit assignment.
    #[default]
    Mask,
    /// Sample failed trajectories again with new seeds; drop them after too many failures.
    Resample,
}

/// Sampling of trajectories.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RolloutConfig {
    /// Tasks per step.
    #[schemars(range(min = 1, max = 65536))]
    pub tasks_per_step: usize,
    /// Trajectories per task.
    #[schemars(range(min = 1, max = 4096))]
    pub group_size: usize,
    /// Sampling temperature.
    #[schemars(range(max = 100.0), extend("exclusiveMinimum" = 0.0))]
    pub temperature: f32,
    /// Nucleus sampling: minimum probability mass kept.
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0))]
    pub top_p: f32,
    /// Number of most probable tokens to sample from; 0: all tokens.
    #[schemars(range(max = 1000000000))]
    pub top_k: usize,
    /// Maximum tokens of a response.
    #[schemars(range(min = 1, max = 1000000))]
    pub max_response_tokens: usize,
    /// Maximum tokens of a sequence.
    #[schemars(range(min = 2, max = 10000000))]
    pub max_model_len: usize,
    /// Number of samplers, each on its own thread; changing it changes the results.
    #[schemars(range(min = 1, max = 256))]
    pub num_workers: usize,
    /// Number of trajectories that each worker samples concurrently.
    #[schemars(range(min = 1, max = 65536))]
    pub max_num_seqs: usize,
    /// Which groups to train on: all of them, or those chosen by DAPO's dynamic sampling or by
    /// rejection.
    pub filter_groups: SelectionConfig,
    /// DeepSWE's compact filtering: truncated or looping trajectories get no gradient, but count in
    /// their group's baseline and the loss's means. Absent: off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compact_filter: Option<CompactFilterConfig>,
    /// DAPO's penalty on responses near the length limit. Absent: off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlong: Option<OverlongSettings>,
    /// Number of threads for environments whose calls block; instantaneous environments need none.
    #[schemars(range(min = 1, max = 4096))]
    pub env_threads: usize,
    /// Maximum seconds of a blocking environment's reset or step, retries included; a batch of
    /// steps gets the sum of its steps' limits. JSON-lines environments use `env.timeout_s`
    /// instead.
    #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
    pub env_timeout_s: f64,
    /// Maximum retries of a reset or step after transient failures, with increasing waits.
    #[schemars(range(max = 100))]
    pub env_retries: u32,
    /// Handling of trajectories whose environment or sampler failed.
    pub on_error: OnError,
    /// Maximum attempts to resample a failed trajectory (`on_error = "resample"` and evaluations).
    #[schemars(range(max = 100))]
    pub max_resamples: u64,
    /// For asynchronous rollouts: maximum age, in steps, of the weights that sample a rollout. 0: a
    /// rollout starts after the previous step's updates. N: the next N rollouts run during updates,
    /// with weights that are N steps old.
    #[schemars(range(max = 64))]
    pub max_staleness: u64,
    /// Inference servers (vLLM, SGLang) that sample instead of this process; needs the feature
    /// `remote`. Absent: off.
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
            max_model_len: 2560,
            num_workers: 2,
            max_num_seqs: 64,
            filter_groups: SelectionConfig::All,
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
