//! Selects sampled groups for training.
//!
//! DAPO's dynamic sampling (Yu et al. 2025, "DAPO", section 3.2) drops groups with equal returns,
//! which carry no signal, and samples more groups until the batch is full or `max_rounds` is
//! reached. Groups beyond a full batch are dropped, too. DeepSWE's rejection sampling plays
//! `oversample` times the needed number of groups in one round and drops groups without both
//! successes and failures.
//!
//! Differs from the papers: a batch that is not full after the last round is used without padding.
//! The number of dropped groups is a diagnostic.

use serde::{Deserialize, Serialize};
use turnwise_core::{Batch, Group, Preset};

use crate::CreditError;

/// DAPO: dynamic sampling, a higher upper clip bound and a length penalty.
///
/// DeepSWE: leave-one-out baseline, higher upper clip bound, no KL, token sums divided by the
/// number of sequences, rejection of one-outcome groups, compact filtering. DeepSWE also divides
/// its loss by the maximum length; the preset does not, because a constant factor does not change
/// AdamW's updates.
pub(crate) const PRESETS: &[Preset] = &[
    Preset::on(
        "grpo",
        "dapo",
        "objective.clip = { low = 0.2, high = 0.28 }\nrollout = { filter_groups.kind = \"dynamic\", overlong = {} }",
    ),
    Preset::on(
        "rloo",
        "deepswe",
        "credit.estimator.invalid_penalty = 0.0\n\
         objective = { clip = { low = 0.2, high = 0.28 }, loss_agg_mode = \"seq-mean-token-sum\" }\n\
         rollout = { filter_groups.kind = \"rejection\", compact_filter = {} }",
    ),
];

/// Groups to train on: `{ kind = "dynamic", max_rounds = 10 }`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum SelectionConfig {
    /// All groups.
    #[default]
    All,
    /// Sample until the batch is full of groups whose returns differ.
    Dynamic(DynamicConfig),
    /// Sample one larger round, and keep groups with both successes and failures.
    Rejection(RejectionConfig),
}

/// Settings of dynamic sampling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DynamicConfig {
    /// Maximum number of sampling rounds; if the batch is not full after them, it stays smaller.
    #[schemars(range(min = 1, max = 1000))]
    pub max_rounds: usize,
}

impl Default for DynamicConfig {
    fn default() -> Self {
        Self { max_rounds: 10 }
    }
}

/// Settings of rejection sampling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RejectionConfig {
    /// Number of groups to sample, as a multiple of the number needed.
    #[schemars(range(min = 1, max = 1000))]
    pub oversample: usize,
}

impl Default for RejectionConfig {
    fn default() -> Self {
        Self { oversample: 2 }
    }
}

/// Fills a batch from rounds of sampled groups.
#[derive(Clone, Debug)]
pub struct Selection {
    config: SelectionConfig,
    wanted: usize,
    rounds: usize,
    dropped: usize,
    cut: usize,
    kept: Vec<Group>,
}

impl Selection {
    /// Creates a selection for `wanted` groups.
    ///
    /// # Errors
    /// Fails if the settings would sample no groups.
    pub fn new(config: &SelectionConfig, wanted: usize) -> Result<Self, CreditError> {
        let rounds = match config {
            SelectionConfig::All => 1,
            SelectionConfig::Dynamic(config) => config.max_rounds,
            SelectionConfig::Rejection(config) => config.oversample,
        };
        if rounds == 0 || wanted == 0 {
            return Err(CreditError::Setting {
                method: "selection",
                reason: "max_rounds, oversample and the number of groups must be 1 or more".into(),
            });
        }
        Ok(Self { config: config.clone(), wanted, rounds: 0, dropped: 0, cut: 0, kept: Vec::new() })
    }

    /// Returns the number of groups to sample next; 0 if done.
    pub fn missing(&self) -> usize {
        let size = match &self.config {
            SelectionConfig::All | SelectionConfig::Dynamic(_) => self.wanted,
            SelectionConfig::Rejection(config) => self.wanted.saturating_mul(config.oversample),
        };
        if self.rounds >= self.max_rounds() || (self.rounds > 0 && self.kept.len() >= self.wanted) {
            0
        } else {
            size
        }
    }

    /// Adds one round's groups.
    pub fn add(&mut self, round: Vec<Group>) {
        self.rounds += 1;
        for group in round {
            if !self.keeps(&group) {
                self.dropped += 1;
            } else if self.kept.len() < self.wanted {
                self.kept.push(group);
            } else {
                self.cut += 1;
            }
        }
    }

    /// Returns true if the group is usable for training.
    pub fn keeps(&self, group: &Group) -> bool {
        let members = &group.trajectories;
        match self.config {
            SelectionConfig::All => true,
            SelectionConfig::Dynamic(_) => !group.has_equal_returns(),
            SelectionConfig::Rejection(_) => {
                members.windows(2).any(|pair| pair[0].success != pair[1].success)
            }
        }
    }

    /// Returns the number of dropped groups.
    pub fn dropped(&self) -> usize {
        self.dropped
    }

    /// Returns the number of usable groups left over when the batch was full.
    pub fn surplus(&self) -> usize {
        self.cut
    }

    /// Returns the maximum number of rounds.
    pub fn max_rounds(&self) -> usize {
        match &self.config {
            SelectionConfig::All | SelectionConfig::Rejection(_) => 1,
            SelectionConfig::Dynamic(config) => config.max_rounds,
        }
    }

    /// Returns the number of kept groups.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Returns the kept groups in sampling order.
    pub fn groups_mut(&mut self) -> &mut [Group] {
        &mut self.kept
    }

    /// Returns the number of rounds so far.
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// Returns the kept groups as a batch, with new group numbers.
    pub fn finish(mut self) -> Batch {
        for (number, group) in self.kept.iter_mut().enumerate() {
            group.trajectories.iter_mut().for_each(|trajectory| trajectory.group = number);
        }
        Batch { groups: self.kept }
    }
}
