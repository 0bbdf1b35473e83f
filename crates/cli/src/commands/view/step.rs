use std::collections::BTreeMap;

use turnwise_core::{StageRecord, Trajectory};

use super::explain::Explained;
use crate::commands::credit::table::counted;

pub(super) struct Step {
    pub(super) number: u64,
    pub(super) groups: Vec<Vec<Shown>>,
    /// Credit method, e.g. `gigpo, then aem`.
    pub(super) method: Option<String>,
    pub(super) explained: Explained,
    /// Short method name for the column header.
    pub(super) first: String,
    pub(super) diagnostics: BTreeMap<String, f64>,
}

pub(super) struct Shown {
    pub(super) trajectory: Trajectory,
    /// The group's name in the file.
    pub(super) group: String,
    /// The trajectory's place in the file.
    pub(super) place: String,
    /// Whether the task was solved, if known.
    pub(super) success: Option<bool>,
    /// One advantage per turn, if known.
    pub(super) advantages: Option<Vec<f64>>,
    /// Credit stages per turn, if explained.
    pub(super) explanation: Vec<Vec<StageRecord>>,
    /// Columns next to the advantages, the same for all trajectories.
    pub(super) beside: Vec<Beside>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Beside {
    /// Method name, or [`TRUTH`].
    pub(super) name: String,
    pub(super) values: Vec<Option<f64>>,
    pub(super) errors: Option<Vec<f64>>,
}

pub(super) const TRUTH: &str = "A*";

/// Minimum distance of a decisive true advantage from 0, in standard errors.
const DECISIVE: f64 = 2.0;

impl Beside {
    pub(super) fn value(&self, turn: usize) -> Option<f64> {
        self.values.get(turn).copied().flatten()
    }

    pub(super) fn error(&self, turn: usize) -> Option<f64> {
        self.errors.as_ref()?.get(turn).copied()
    }
}

impl Shown {
    pub(super) fn advantage(&self, turn: usize) -> Option<f64> {
        self.advantages.as_ref().and_then(|advantages| advantages.get(turn)).copied()
    }

    pub(super) fn stages(&self, turn: usize) -> &[StageRecord] {
        self.explanation.get(turn).map_or(&[], Vec::as_slice)
    }

    pub(super) fn compares_methods(&self) -> bool {
        self.beside.iter().any(|beside| beside.name != TRUTH)
    }

    pub(super) fn truth(&self) -> Option<&Beside> {
        self.beside.iter().find(|beside| beside.name == TRUTH)
    }

    pub(super) fn decisive(&self) -> Option<usize> {
        let truth = self.truth()?;
        let known =
            truth.values.iter().enumerate().filter_map(|(turn, value)| Some((turn, value.as_ref()?.abs())));
        let (turn, most) = known.max_by(|a, b| a.1.total_cmp(&b.1))?;
        (most > DECISIVE * truth.error(turn).unwrap_or(0.0)).then_some(turn)
    }

    /// Returns true if a loss term treats this turn differently because of its unusual entropy.
    pub(super) fn is_outlier(&self, turn: usize) -> bool {
        let stages = self.stages(turn).iter();
        stages.filter_map(|stage| stage.facts.get("outlier")).any(|outlier| outlier != 0.0)
    }
}

impl Step {
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
