//! Compact filtering: truncated, failed and looping trajectories contribute no gradient, but count
//! in their group's baseline and the loss denominator.
//!
//! | filtered | if the trajectory |
//! |---|---|
//! | truncated | ended at the turn or context limit |
//! | failed | had a failed environment or sampler; training drops these earlier |
//! | looping | took the same action in the same state more than `max_repeats` times |
//!
//! Source: DeepSWE (Luo et al. 2025, with rLLM). Differs from rLLM, which looks only at the stop
//! reason: we also detect loops, by comparing state keys and parsed actions.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use turnwise_core::{StopReason, Trajectory};

/// Settings of the compact filter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CompactFilterConfig {
    /// Filter trajectories that ended at the turn or context limit.
    pub truncated: bool,
    /// Filter trajectories that take the same action in the same state more often than this; 0
    /// disables the check.
    #[schemars(range(max = 100000))]
    pub max_repeats: usize,
}

impl Default for CompactFilterConfig {
    fn default() -> Self {
        Self { truncated: true, max_repeats: 3 }
    }
}

/// Why a trajectory is filtered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filtered {
    /// The trajectory reached the turn or context limit.
    Truncated,
    /// The environment or sampler failed.
    Failed,
    /// The trajectory repeats an action in the same state too often.
    Looping,
}

impl CompactFilterConfig {
    /// Returns the reason to filter a trajectory; `None` to keep it.
    pub fn reason(&self, trajectory: &Trajectory) -> Option<Filtered> {
        match trajectory.stop {
            StopReason::MaxTurns | StopReason::ContextOverflow if self.truncated => Some(Filtered::Truncated),
            StopReason::EnvironmentError(_) | StopReason::SampleError(_) => Some(Filtered::Failed),
            _ if self.loops(trajectory) => Some(Filtered::Looping),
            _ => None,
        }
    }

    fn loops(&self, trajectory: &Trajectory) -> bool {
        let mut taken: HashMap<(&str, &str), usize> = HashMap::new();
        self.max_repeats > 0
            && trajectory.turns.iter().filter(|turn| !turn.is_compaction()).any(|turn| {
                let times = taken.entry((turn.state_key(), &turn.action)).or_default();
                *times += 1;
                *times > self.max_repeats
            })
    }
}
