//! The training loop's settings.

use serde::{Deserialize, Serialize};
use turnwise_model::ScheduleKind;

/// Unit of the shuffle before a pass over a rollout is cut into minibatches of as equal numbers of trajectories as there can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Shuffle {
    /// Each on its own, so that the samples of a group come into several minibatches.
    #[default]
    Trajectories,
    /// Whole groups: the samples of a task stay together, so that a minibatch computes the prompt that they share once. Only a group
    /// that lies on a cut is split.
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
    /// Unit of the shuffle before each pass is cut into minibatches.
    pub shuffle: Shuffle,
    /// Passes over a rollout.
    #[schemars(range(min = 1, max = 1000))]
    pub update_epochs: usize,
    /// Save the passes over trajectories whose advantages are all zero, which have no gradient. They count in the means of the loss
    /// all the same. (With a KL or entropy term in the loss they have a gradient and are not skipped; a minibatch without
    /// any gradient makes no update.)
    pub skip_zero_advantage: bool,
    /// Leave groups out of the update whose returns are all equal, even where a KL or entropy term would act on them (HAS,
    /// appendix C). Their trajectories still count in the metrics and train a learned decomposer.
    pub skip_equal_groups: bool,
    /// Compute the old log-probabilities anew with the learner instead of taking the sampler's.
    pub recompute_old_logprobs: bool,
    /// Tokens run through the model at once in each lane.
    #[schemars(range(min = 1, max = 100000000))]
    pub micro_batch_tokens: usize,
    /// Data-parallel lanes. Part of what is computed, not of the machine.
    #[schemars(range(min = 1, max = 256))]
    pub lanes: usize,
    /// Keep only layer inputs for the backward pass and compute the rest again.
    pub recompute_layers: bool,
    /// A checkpoint every so many steps (and one at the end).
    #[schemars(range(max = 1000000000))]
    pub checkpoint_every: u64,
    /// Checkpoints that are kept; 0 keeps all. Those of a phase's end are always kept.
    #[schemars(range(max = 1000000000))]
    pub keep_last: usize,
    /// A split of `eval.splits`: the checkpoint with the best success rate on it so far is kept too, besides the newest ones,
    /// and `turnwise eval RUN --checkpoint best` evaluates it. Every evaluation (`eval.every`) that is the best then writes
    /// one. Absent: off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_best: Option<String>,
    /// Write every trajectory of every step: those that are trained on, and those left out because they failed; groups that the selection
    /// drops are not written.
    pub save_trajectories: bool,
    /// Store with every trajectory what each stage did to each turn's advantage, and why.
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
