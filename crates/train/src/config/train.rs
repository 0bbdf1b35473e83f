//! The training loop's settings.

use serde::{Deserialize, Serialize};
use turnwise_model::ScheduleKind;
use turnwise_objective::RolloutCorrection;

/// What is shuffled before a pass over a rollout is split into minibatches of nearly equal numbers
/// of trajectories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Shuffle {
    /// Trajectories, so that a group is spread over minibatches.
    #[default]
    Trajectories,
    /// Groups, so that a minibatch computes a group's shared prompt once. Only groups at a boundary
    /// are split.
    Groups,
}

/// The training loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrainConfig {
    /// Steps of reinforcement learning, each a rollout and its updates.
    #[schemars(range(max = 1000000000))]
    pub steps: u64,
    /// Peak learning rate.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub learning_rate: f64,
    /// Updates of linear warm-up.
    #[schemars(range(max = 1000000000))]
    pub warmup: u64,
    /// Form of the schedule after the warm-up.
    pub schedule: ScheduleKind,
    /// Updates per pass over a rollout.
    #[schemars(range(min = 1, max = 1000000))]
    pub num_minibatches: usize,
    /// What is shuffled before a pass over a rollout is split into minibatches.
    pub shuffle: Shuffle,
    /// Passes over a rollout (PPO epochs).
    #[schemars(range(min = 1, max = 1000))]
    pub update_epochs: usize,
    /// Skip the passes of trajectories whose advantages are all zero and that have no gradient.
    /// They still count in the means of the loss. With a KL or entropy term in the loss they have a
    /// gradient and are not skipped. A minibatch without any gradient makes no update.
    pub skip_zero_advantage: bool,
    /// Leave groups of equal returns out of the update, even if a KL or entropy term would act on
    /// them (HAS, appendix C). They still count in the metrics and train a learned decomposer.
    pub skip_equal_groups: bool,
    /// Recompute old log-probs with the learner instead of using the sampler's.
    pub recompute_old_logprobs: bool,
    /// Importance weights for what servers or older weights sampled; needs
    /// `recompute_old_logprobs`. Absent: off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout_correction: Option<RolloutCorrection>,
    /// Tokens per forward pass in each lane.
    #[schemars(range(min = 1, max = 100000000))]
    pub micro_batch_tokens: usize,
    /// Number of data-parallel lanes. It affects the results, so it does not follow the machine.
    #[schemars(range(min = 1, max = 256))]
    pub lanes: usize,
    /// Keep only the inputs of layers for the backward pass and recompute the rest.
    pub recompute_layers: bool,
    /// Steps between checkpoints; there is always one at the end.
    #[schemars(range(max = 1000000000))]
    pub checkpoint_every: u64,
    /// Number of checkpoints to keep; 0: all. Those at the end of a phase are always kept.
    #[schemars(range(max = 1000000000))]
    pub keep_last: usize,
    /// A split of `eval.splits`: also keep the checkpoint with the best success on it; `turnwise
    /// eval RUN --checkpoint best` evaluates it. Each evaluation (`eval.every`) that is the best
    /// writes a checkpoint. Absent: off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_best: Option<String>,
    /// Write all trajectories of each step: those that are trained on, and failed ones. Groups that
    /// the selection drops are not written.
    pub save_trajectories: bool,
    /// Store with each trajectory what each stage did to each turn's advantage.
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
            update_epochs: 1,
            skip_zero_advantage: true,
            skip_equal_groups: false,
            recompute_old_logprobs: false,
            rollout_correction: None,
            micro_batch_tokens: 4096,
            lanes: 2,
            recompute_layers: false,
            checkpoint_every: 10,
            keep_last: 2,
            keep_best: None,
            save_trajectories: true,
            explain: false,
        }
    }
}
