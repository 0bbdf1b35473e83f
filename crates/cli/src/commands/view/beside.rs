use std::path::Path;

use turnwise_core::{Batch, Group};
use turnwise_eval::benchmark::{TruthLine, TurnTruth, read_truth};

use super::source::by_key;
use super::step::{Beside, Shown, Step, TRUTH};

pub(super) type Truth = Vec<OfGroup>;

type OfGroup = Vec<Vec<Option<TurnTruth>>>;

/// Reads a file written by `turnwise benchmark credit`; `None` for other files.
pub(super) fn truth_of(path: &Path) -> anyhow::Result<Option<Vec<TruthLine>>> {
    let Ok(file) = turnwise_files::open(path) else { return Ok(None) };
    let Some(Ok(first)) = turnwise_files::lines(file).next() else { return Ok(None) };
    if serde_json::from_str::<TruthLine>(&first).is_err() {
        return Ok(None);
    }
    Ok(Some(read_truth(path)?))
}

pub(super) fn grouped(lines: Vec<TruthLine>) -> (Batch, Truth) {
    let groups = by_key(lines, |line| line.trajectory.group).into_values().map(|lines| {
        let (trajectories, truth): (Vec<_>, OfGroup) =
            lines.into_iter().map(|line| (line.trajectory, line.truth)).unzip();
        (Group { trajectories }, truth)
    });
    let (groups, truth) = groups.unzip();
    (Batch { groups }, truth)
}

pub(super) fn add_method(step: &mut Step, other: Step, name: &str) {
    let others = other.groups.into_iter().flatten();
    for (shown, other) in step.groups.iter_mut().flatten().zip(others) {
        let turns = shown.trajectory.turns.len();
        let values = (0..turns).map(|turn| other.advantage(turn)).collect();
        shown.beside.push(Beside { name: name.to_owned(), values, errors: None });
    }
}

pub(super) fn add_truth(step: &mut Step, truth: &Truth) {
    for (shown, turns) in step.groups.iter_mut().flatten().zip(truth.iter().flatten()) {
        let of = |number: fn(&TurnTruth) -> f64| turns.iter().map(move |turn| turn.as_ref().map(number));
        shown.beside.push(Beside {
            name: TRUTH.into(),
            values: of(|turn| turn.a_star).collect(),
            errors: Some(of(|turn| turn.a_star_error).map(Option::unwrap_or_default).collect()),
        });
    }
}

pub(super) fn largest(shown: &[Shown]) -> Vec<f64> {
    let columns = shown.first().map_or(0, |shown| shown.beside.len());
    let most = |of: &dyn Fn(&Shown) -> Vec<f64>| {
        shown.iter().flat_map(of).fold(0.0_f64, |most, value| value.abs().max(most))
    };
    let first = most(&|shown| shown.advantages.iter().flatten().copied().collect());
    let others = (0..columns)
        .map(|column| most(&|shown| shown.beside[column].values.iter().flatten().copied().collect()));
    std::iter::once(first).chain(others).collect()
}

/// Returns the second method's credit minus the first's, each divided by that method's largest
/// credit in the group.
pub(super) fn difference(shown: &Shown, turn: usize, most: &[f64]) -> Option<f64> {
    let (column, other) = shown.beside.iter().enumerate().find(|(_, beside)| beside.name != TRUTH)?;
    let share = |value: f64, most: f64| if most > 0.0 { value / most } else { 0.0 };
    let (first, second) = (most.first()?, most.get(column + 1)?);
    Some(share(other.value(turn)?, *second) - share(shown.advantage(turn)?, *first))
}
