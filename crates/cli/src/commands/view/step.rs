//! The trajectories of a step with their credit.

use std::collections::BTreeMap;

use turnwise_core::{StageRecord, Trajectory};

use super::explain::Explained;
use crate::commands::credit::table::counted;

/// The trajectories of a step with their credit.
pub(super) struct Step {
    pub(super) number: u64,
    pub(super) groups: Vec<Vec<Shown>>,
    /// The method that the advantages are of, as `gigpo, then aem`.
    pub(super) method: Option<String>,
    pub(super) explained: Explained,
    /// Numbers of the batch by name.
    pub(super) diagnostics: BTreeMap<String, f64>,
}

/// A trajectory with its credit.
pub(super) struct Shown {
    pub(super) trajectory: Trajectory,
    /// The name of its group in the file.
    pub(super) group: String,
    /// Its place in the file.
    pub(super) place: String,
    /// True if the task was solved; absent if the file does not say.
    pub(super) success: Option<bool>,
    /// One a turn; absent if none were recorded or computed.
    pub(super) advantages: Option<Vec<f64>>,
    /// The stages of every turn; empty if there is no explanation.
    pub(super) explanation: Vec<Vec<StageRecord>>,
}

impl Shown {
    /// Returns the advantage of a turn.
    pub(super) fn advantage(&self, turn: usize) -> Option<f64> {
        self.advantages.as_ref().and_then(|advantages| advantages.get(turn)).copied()
    }

    /// Returns the stages behind it.
    pub(super) fn stages(&self, turn: usize) -> &[StageRecord] {
        self.explanation.get(turn).map_or(&[], Vec::as_slice)
    }

    /// Returns true for a turn that a loss term acts on because its entropy is unusual.
    pub(super) fn is_outlier(&self, turn: usize) -> bool {
        let stages = self.stages(turn).iter();
        stages.filter_map(|stage| stage.facts.get("outlier")).any(|outlier| outlier != 0.0)
    }
}

impl Step {
    /// How much there is, in words.
    pub(super) fn summary(&self) -> String {
        let trajectories: Vec<&Shown> = self.groups.iter().flatten().collect();
        let turns: usize = trajectories.iter().map(|shown| shown.trajectory.turns.len()).sum();
        let known = trajectories.iter().filter_map(|shown| shown.success).count();
        let solved = trajectories.iter().filter(|shown| shown.success == Some(true)).count();
        let mut text = format!(
            "step {}: {} in {}, {}",
            self.number,
            counted(trajectories.len(), "trajectory", "trajectories"),
            counted(self.groups.len(), "group", "groups"),
            counted(turns, "turn", "turns")
        );
        if known > 0 {
            text.push_str(&format!(", {solved} of {known} solved"));
        }
        text
    }
}
