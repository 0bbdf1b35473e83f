//! The `[train]` table: the training loop.

use serde::{Deserialize, Serialize};
use turnwise_model::ScheduleKind;
use turnwise_objective::RolloutCorrection;

/// What to shuffle before splitting a rollout into minibatches with nearly equal numbers of
/// trajectories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Shuffle {
    /// Trajectories: a group is spread over minibatches.
    #[default]
    Trajectories,
    /// Groups: a minibatch computes a group's shared prompt once. Only groups at the boundary
    /// between two minibatches are split.
    Groups,
}

/// The training loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrainConfig {
    /// Number of RL steps; each is a rollout and its updates.
    #[schemars(range(max = 1000000000))]
    pub steps: u64,
    /// Peak learning rate.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub learning_rate: f64,
    /// Linear warm-up, in updates.
    #[schemars(range(max = 1000000000))]
    pub warmup: u64,
    /// Schedule of the learning rate after the warm-up.
    pub schedule: ScheduleKind,
    /// Number of minibatches, and thus of updates, in each pass over a rollout.
    #[schemars(range(min = 1, max = 1000000))]
    pub num_minibatches: usize,
    /// What to shuffle before splitting a rollout into minibatches.
    pub shuffle: Shuffle,
    /// PPO epochs: passes over a rollout.
    #[schemars(range(min = 1, max = 1000))]
    pub ppo_epochs: usize,
    /// Skip trajectories without a gradient: those with only zero advantages, if the loss has no KL
    /// or entropy term. Skipped trajectories still count in the loss's means. A minibatch without
    /// any gradient makes no update.
    pub skip_zero_advantage: bool,
    /// Leave groups with equal returns out of the update, despite KL or entropy terms (HAS,
    /// appendix C). These groups still count in metrics, and a learned decomposer still trains on
    /// them.
    pub skip_equal_groups: bool,
    /// Recompute old log-probs with the learner instead of using the sampler's.
    pub recompute_old_logprobs: bool,
    /// Importance weights for tokens sampled by servers or older weights; needs
    /// `recompute_old_logprobs`. Absent: off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout_correction: Option<RolloutCorrection>,
    /// Maximum number of tokens in a forward pass of one worker; a longer sequence gets its own
    /// pass.
    #[schemars(range(min = 1, max = 100000000))]
    pub micro_batch_tokens: usize,
    /// Number of data-parallel workers; changing it changes the results.
    #[schemars(range(min = 1, max = 256))]
    pub num_workers: usize,
    /// Activation checkpointing: keep only layer inputs for the backward pass.
    pub recompute_layers: bool,
    /// Steps between checkpoints; the last step also writes one.
    #[schemars(range(max = 1000000000))]
    pub checkpoint_every: u64,
    /// Number of most recent checkpoints to keep; 0: all. The last checkpoint of a phase is always
    /// kept.
    #[schemars(range(max = 1000000000))]
    pub keep_last: usize,
    /// A split of `eval.splits`: also keep the checkpoint with the highest success rate on this
    /// split (`turnwise eval RUN --checkpoint best`). Each new best evaluation writes a checkpoint.
    /// Absent: off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_best: Option<String>,
    /// Write all trajectories of each step, including failed ones, but not those of groups that the
    /// selection dropped.
    pub save_trajectories: bool,
    /// Store how each credit stage changed each turn's advantage.
    pub explain: bool,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            steps: 100,
            learning_rate: 1e-6,
            warmup: 0,
            schedule: ScheduleKind::Constant,
            num_minibatches: 1,
            shuffle: Shuffle::Trajectories,
            ppo_epochs: 1,
            skip_zero_advantage: true,
            skip_equal_groups: false,
            recompute_old_logprobs: false,
            rollout_correction: None,
            micro_batch_tokens: 4096,
            num_workers: 2,
            recompute_layers: false,
            checkpoint_every: 10,
            keep_last: 2,
            keep_best: None,
            save_trajectories: true,
            explain: false,
        }
    }
}
