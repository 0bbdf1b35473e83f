//! Compact filtering (DeepSWE's recipe): trajectories that were cut off, or that go round in circles, stay in their groups and are kept
//! out of the loss.
//!
//! Such a trajectory says little of its turns: it was cut at a limit before it could end, or it repeated what it had tried. Its return
//! still counts in the group's baseline, and its size in the means of the loss, so that a filtered trajectory is one of gradient 0.
//!
//! | filtered | where it |
//! |---|---|
//! | truncated | ended at the limit of turns, or because the next prompt did not fit the context |
//! | failed | ended because its environment or its sampler did (a timeout among them); training leaves these out of their groups before |
//! | looping | took one action in one state more than `max_repeats` times |
//!
//! Source: the recipe of DeepSWE (Luo et al. 2025, with rLLM), which AEM trains on too (its section 5.2). Differs from it: rLLM masks by
//! the reason of the end alone; a loop is recognised by the state's key and the parsed action.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use turnwise_core::{StopReason, Trajectory};

/// The switches of the filter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CompactFilterConfig {
    /// Filter trajectories that a limit cut off: of turns, or of the context.
    pub truncated: bool,
    /// Filter trajectories that take one action in one state more often than this; 0: loops are not looked for.
    #[schemars(range(max = 100000))]
    pub max_repeats: usize,
}

impl Default for CompactFilterConfig {
    fn default() -> Self {
        Self { truncated: true, max_repeats: 3 }
    }
}

/// Reason why a trajectory is filtered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filtered {
    /// A limit cut it off.
    Truncated,
    /// Its environment or its sampler failed.
    Failed,
    /// It repeats itself.
    Looping,
}

impl CompactFilterConfig {
    /// Returns why a trajectory is filtered; nothing where it is trained on.
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
