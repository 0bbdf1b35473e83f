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
    /// Short name of the method of the advantages, for the columns if others are beside it.
    pub(super) first: String,
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
    /// What is shown beside the advantages; the same columns for all trajectories of a step.
    pub(super) beside: Vec<Beside>,
}

/// Advantages of another origin for the turns of a trajectory.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Beside {
    /// A method, or [`TRUTH`].
    pub(super) name: String,
    /// One per turn.
    pub(super) values: Vec<Option<f64>>,
    /// Their standard errors, if they are estimates.
    pub(super) errors: Option<Vec<f64>>,
}

/// Name of the column of the true advantages.
pub(super) const TRUTH: &str = "A*";

/// Standard errors that the true advantage of a turn must be away from 0 for the turn to be called decisive.
const DECISIVE: f64 = 2.0;

impl Beside {
    /// Returns the number of a turn.
    pub(super) fn value(&self, turn: usize) -> Option<f64> {
        self.values.get(turn).copied().flatten()
    }

    /// Returns its standard error.
    pub(super) fn error(&self, turn: usize) -> Option<f64> {
        self.errors.as_ref()?.get(turn).copied()
    }
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

    /// Returns true if another method is shown beside the first one.
    pub(super) fn compares_methods(&self) -> bool {
        self.beside.iter().any(|beside| beside.name != TRUTH)
    }

    /// Returns the true advantages, if they are known.
    pub(super) fn truth(&self) -> Option<&Beside> {
        self.beside.iter().find(|beside| beside.name == TRUTH)
    }

    /// Returns the turn with the largest true advantage either way, if that is clearly not 0.
    pub(super) fn decisive(&self) -> Option<usize> {
        let truth = self.truth()?;
        let known =
            truth.values.iter().enumerate().filter_map(|(turn, value)| Some((turn, value.as_ref()?.abs())));
        let (turn, most) = known.max_by(|a, b| a.1.total_cmp(&b.1))?;
        (most > DECISIVE * truth.error(turn).unwrap_or(0.0)).then_some(turn)
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

#[cfg(test)]
mod tests {
    use turnwise_core::Task;

    use super::*;

    #[test]
    fn the_decisive_turn_has_the_largest_true_advantage_and_is_sure() {
        let shown = |values: &[Option<f64>], error: f64| Shown {
            trajectory: Trajectory::new(Task::new("t", "k", "g"), Vec::new()),
            group: String::new(),
            place: String::new(),
            success: None,
            advantages: None,
            explanation: Vec::new(),
            beside: vec![Beside {
                name: TRUTH.into(),
                values: values.to_vec(),
                errors: Some(vec![error; values.len()]),
            }],
        };
        let values = [Some(0.1), None, Some(-0.4), Some(0.3)];
        assert_eq!(shown(&values, 0.1).decisive(), Some(2));
        assert_eq!(shown(&values, 0.3).decisive(), None);
        let mut without = shown(&values, 0.1);
        without.beside[0].name = "gigpo".into();
        assert_eq!(without.decisive(), None);
    }
}
