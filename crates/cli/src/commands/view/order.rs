use super::beside::{difference, largest};
use super::query::Query;
use super::search;
use super::step::{Shown, Step};
use crate::plot::extent;

/// Filters, each with its name in URLs and its label.
pub(super) const SHOWS: [(&str, &str); 7] = [
    ("", "all"),
    ("mixed", "mixed"),
    ("failed", "failed"),
    ("solved", "solved"),
    ("invalid", "with invalid turns"),
    ("outlier", "with outliers"),
    ("error", "ended by an error"),
];

pub(super) const SORTS: [(&str, &str); 6] = [
    ("", "most instructive"),
    ("change", "largest change between methods"),
    ("index", "as recorded"),
    ("return", "lowest return"),
    ("turns", "most turns"),
    ("invalid", "most invalid turns"),
];

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Facts {
    known: usize,
    solved: usize,
    turns: usize,
    invalid: usize,
    outliers: usize,
    errors: usize,
    mean_return: f64,
    /// Highest minus lowest return.
    returns: f64,
    /// Highest minus lowest advantage.
    advantages: f64,
    /// Largest difference between two methods' credits for a turn.
    change: f64,
}

impl Facts {
    pub(super) fn of(group: &[Shown]) -> Self {
        let most = largest(group);
        let mut facts = Self::default();
        for shown in group {
            facts.known += usize::from(shown.success.is_some());
            facts.solved += usize::from(shown.success == Some(true));
            facts.errors += usize::from(shown.trajectory.stop.is_failure());
            facts.mean_return += shown.trajectory.outcome_return() / group.len() as f64;
            for (turn, of) in shown.trajectory.turns.iter().enumerate() {
                facts.turns += 1;
                facts.invalid += usize::from(!of.valid);
                facts.outliers += usize::from(shown.is_outlier(turn));
                let change = difference(shown, turn, &most).unwrap_or(0.0).abs();
                facts.change = facts.change.max(change);
            }
        }
        facts.returns = width(group.iter().map(|shown| shown.trajectory.outcome_return()));
        facts.advantages = width(group.iter().flat_map(|shown| shown.advantages.iter().flatten().copied()));
        facts
    }

    /// Returns true if some but not all trajectories are solved. If it is not known which are
    /// solved, returns true if their returns differ.
    pub(super) fn is_mixed(&self) -> bool {
        if self.known > 0 { 0 < self.solved && self.solved < self.known } else { self.returns > 0.0 }
    }

    fn is_shown(&self, show: &str) -> bool {
        match show {
            "mixed" => self.is_mixed(),
            "failed" => self.known > 0 && self.solved == 0,
            "solved" => self.known > 0 && self.solved == self.known,
            "invalid" => self.invalid > 0,
            "outlier" => self.outliers > 0,
            "error" => self.errors > 0,
            _ => true,
        }
    }

    fn rank(&self, sort: &str) -> [f64; 3] {
        match sort {
            "change" => [-self.change, 0.0, 0.0],
            "index" => [0.0; 3],
            "return" => [self.mean_return, 0.0, 0.0],
            "turns" => [-(self.turns as f64), 0.0, 0.0],
            "invalid" => [-(self.invalid as f64), 0.0, 0.0],
            _ => {
                let share = self.solved as f64 / self.known.max(1) as f64;
                // Half solved comes before one in eight; ties go to the wider range of advantages.
                [f64::from(u8::from(!self.is_mixed())), (share - 0.5).abs(), -self.advantages]
            }
        }
    }
}

fn width(values: impl Iterator<Item = f64>) -> f64 {
    extent(values).map_or(0.0, |(low, high)| (high - low).max(0.0))
}

pub(super) fn order(step: &Step, facts: &[Facts], query: &Query) -> Vec<usize> {
    let words = query.get("q").to_lowercase();
    let has_words = |group: usize| {
        words.is_empty()
            || step.groups[group].iter().any(|shown| search::first(&shown.trajectory, &words).is_some())
    };
    let mut found: Vec<usize> = (0..facts.len())
        .filter(|&group| facts[group].is_shown(query.get("show")) && has_words(group))
        .collect();
    let ranks: Vec<[f64; 3]> = facts.iter().map(|facts| facts.rank(query.get("sort"))).collect();
    let before = |a: &usize, b: &usize| {
        let pairs = ranks[*a].iter().zip(&ranks[*b]);
        pairs.map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne()).unwrap_or(a.cmp(b))
    };
    found.sort_by(before);
    found
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use turnwise_core::{Task, Trajectory, Turn};

    use super::super::explain::Explained;
    use super::*;

    fn step(groups: &[&[bool]]) -> Step {
        let shown = |&success: &bool| {
            let turn = Turn { action: "look".into(), valid: success, ..Turn::default() };
            Shown {
                trajectory: Trajectory::new(Task::new("t", "k", "g"), vec![turn]),
                group: String::new(),
                place: String::new(),
                success: Some(success),
                advantages: Some(vec![if success { 1.0 } else { -1.0 }]),
                explanation: Vec::new(),
                beside: Vec::new(),
            }
        };
        Step {
            number: 1,
            groups: groups.iter().map(|group| group.iter().map(shown).collect()).collect(),
            method: None,
            explained: Explained::Recorded,
            first: String::new(),
            diagnostics: BTreeMap::new(),
        }
    }

    #[test]
    fn mixed_groups_are_first_and_filters_leave_out_the_others() {
        let step =
            step(&[&[true; 4], &[true, false, false, false], &[true, true, false, false], &[false; 4]]);
        let facts: Vec<Facts> = step.groups.iter().map(|group| Facts::of(group)).collect();
        let order = |query: &str| order(&step, &facts, &Query::parse(query));
        assert_eq!(order(""), [2, 1, 0, 3]);
        assert_eq!(order("sort=index"), [0, 1, 2, 3]);
        assert_eq!(order("sort=invalid"), [3, 1, 2, 0]);
        assert_eq!(order("show=mixed&sort=index"), [1, 2]);
        assert_eq!(order("show=failed"), [3]);
        assert_eq!(order("show=solved"), [0]);
        assert_eq!(order("show=outlier"), [0; 0]);
        assert_eq!(order("q=LOOK&sort=index"), [0, 1, 2, 3]);
        assert_eq!(order("q=jump"), [0; 0]);
    }
}
