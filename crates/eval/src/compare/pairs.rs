//! Compares a method with its baseline on the same tasks.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::methods::Scores;
use super::pools::estimate;
use super::{Chosen, CompareSettings, Estimate};
use crate::statistics::{
    Bootstrap, McNemar, PairedTest, mcnemar, mean, paired_permutation, probability_of_improvement,
};

/// McNemar's test of two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunPair {
    /// The method's run.
    pub run: String,
    /// The baseline's run.
    pub baseline: String,
    /// Test result; the method's run is the first run.
    #[serde(flatten)]
    pub test: McNemar,
}

/// Differences between a method and its baseline, by shared seed.
pub type SeedDifferences = BTreeMap<u64, f64>;

/// A method and its baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// Method name.
    pub method: String,
    /// Baseline name.
    pub baseline: String,
    /// Difference of the mean success over tasks that all runs played, with a bootstrap interval
    /// over tasks, stratified by kind. If the evaluations have no outcomes of single tasks, the
    /// success rates are subtracted, without an interval.
    pub difference: Estimate,
    /// Difference of success rates, averaged over seeds, with Student's interval; `None` if fewer
    /// than two seeds are shared.
    pub over_seeds: Option<Estimate>,
    /// Differences that `over_seeds` averages.
    pub by_seed: SeedDifferences,
    /// Like `over_seeds`, for the mean training success over the last [`CompareSettings::smooth`]
    /// steps up to the compared step.
    ///
    /// [`CompareSettings::smooth`]: super::CompareSettings::smooth
    pub training: Option<Estimate>,
    /// Differences that `training` averages.
    pub training_by_seed: SeedDifferences,
    /// Probability that a run of the method beats a run of the baseline on a random kind of task,
    /// with a bootstrap interval over seeds.
    pub improvement: Option<Estimate>,
    /// Paired permutation test over tasks; successes are averaged over seeds.
    pub permutation: Option<PairedTest>,
    /// McNemar's tests of runs with the same seed, or of the two runs if each method has only one.
    pub mcnemar: Vec<RunPair>,
}

/// Returns each task's kind and mean success per run.
fn by_task<'a>(chosen: &[&Chosen<'a>]) -> BTreeMap<usize, (&'a str, Vec<f64>)> {
    let mut found: BTreeMap<usize, (&str, Vec<f64>)> = BTreeMap::new();
    for chosen in chosen {
        let mut draws: BTreeMap<usize, (&str, Vec<f64>)> = BTreeMap::new();
        for outcome in chosen.evaluation.outcomes.iter() {
            let entry = draws.entry(outcome.task).or_insert_with(|| (&outcome.kind, Vec::new()));
            entry.1.push(f64::from(u8::from(outcome.success)));
        }
        for (task, (kind, draws)) in draws {
            found.entry(task).or_insert_with(|| (kind, Vec::new())).1.push(mean(&draws));
        }
    }
    // Drops tasks that failed in the environment.
    found.retain(|_, (_, runs)| runs.len() == chosen.len());
    found
}

fn by_seed(
    method: &[&Chosen<'_>],
    baseline: &[&Chosen<'_>],
    number: impl Fn(&Chosen<'_>) -> Option<f64>,
) -> SeedDifferences {
    let of_seed = |chosen: &[&Chosen<'_>]| -> SeedDifferences {
        chosen.iter().filter_map(|chosen| Some((chosen.run.seed?, number(chosen)?))).collect()
    };
    let theirs = of_seed(baseline);
    let ours = of_seed(method).into_iter();
    ours.filter_map(|(seed, value)| Some((seed, value - theirs.get(&seed)?))).collect()
}

fn training_success(chosen: &Chosen<'_>, steps: usize) -> Option<f64> {
    let until = chosen.run.training.iter().filter(|(step, _)| *step <= chosen.step);
    let rates: Vec<f64> = until.map(|(_, rate)| *rate).collect();
    let last = &rates[rates.len().saturating_sub(steps.max(1))..];
    (!last.is_empty()).then(|| mean(last))
}

/// Returns only the runs whose seed both methods have, because each seed has its own warm start. If
/// the methods have the same seeds or none in common, returns all runs.
fn with_shared_seeds<'c, 'r>(
    method: &[&'c Chosen<'r>],
    baseline: &[&'c Chosen<'r>],
    notes: &mut Vec<String>,
) -> [Vec<&'c Chosen<'r>>; 2] {
    let all = [method.to_vec(), baseline.to_vec()];
    let seeds = |chosen: &[&Chosen<'_>]| -> Option<BTreeSet<u64>> {
        chosen.iter().map(|chosen| chosen.run.seed).collect()
    };
    let [Some(own), Some(other)] = [method, baseline].map(seeds) else { return all };
    if own == other || own.is_empty() || other.is_empty() {
        return all;
    }
    let list = |seeds: &BTreeSet<u64>| seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let shared = &own & &other;
    let [one, two] = all.each_ref().map(|chosen| &chosen[0].run.method);
    let (one_has, two_has) = (list(&own), list(&other));
    if shared.is_empty() {
        notes.push(format!(
            "{one} has seeds {one_has}, {two} {two_has}: they share none, so that their difference is one of seeds, too"
        ));
        return all;
    }
    notes.push(format!(
        "{one} has seeds {one_has}, {two} {two_has}: they are compared on those that both have, {}",
        list(&shared)
    ));
    all.map(|chosen| {
        chosen
            .into_iter()
            .filter(|chosen| chosen.run.seed.is_some_and(|seed| shared.contains(&seed)))
            .collect()
    })
}

pub(crate) fn against(
    method: &[&Chosen<'_>],
    baseline: &[&Chosen<'_>],
    settings: &CompareSettings,
    notes: &mut Vec<String>,
) -> Pair {
    let [method, baseline] = with_shared_seeds(method, baseline, notes);
    let (method, baseline) = (method.as_slice(), baseline.as_slice());
    let bootstrap = settings.bootstrap;
    let name =
        |chosen: &[&Chosen<'_>]| chosen.first().map(|chosen| chosen.run.method.clone()).unwrap_or_default();
    let success = |chosen: &[&Chosen<'_>]| {
        mean(&chosen.iter().map(|chosen| chosen.evaluation.success.rate).collect::<Vec<_>>())
    };
    let evaluated = by_seed(method, baseline, |chosen| Some(chosen.evaluation.success.rate));
    let trained = by_seed(method, baseline, |chosen| training_success(chosen, settings.smooth));
    let mut pair = Pair {
        difference: Estimate { value: success(method) - success(baseline), interval: None },
        method: name(method),
        baseline: name(baseline),
        over_seeds: estimate(&evaluated),
        by_seed: evaluated,
        training: estimate(&trained),
        training_by_seed: trained,
        improvement: improvement(method, baseline, &bootstrap),
        permutation: None,
        mcnemar: Vec::new(),
    };
    let without = method.iter().chain(baseline).find(|chosen| chosen.evaluation.outcomes.is_empty());
    if let Some(chosen) = without {
        let (root, step) = (chosen.run.path.display(), chosen.step);
        let folder = chosen.run.folders.first().map_or("eval", String::as_str);
        notes.push(format!(
            "no paired tests of {} and {}: {root}/{folder}/step-{step:06}.json was written without outcomes of tasks; where this is the \
             newest checkpoint, `turnwise eval {root} --output {root}/{folder}/step-{step:06}.json` adds them",
            pair.method, pair.baseline
        ));
        return pair;
    }
    let strata = differences_by_kind(method, baseline);
    let differences = strata.concat();
    if let Some(test) = paired_permutation(&differences, bootstrap.resamples, bootstrap.seed) {
        let interval = bootstrap.interval(&[&strata], |drawn| mean(&drawn[0].concat()));
        pair.difference = Estimate { value: test.difference, interval };
        pair.permutation = Some(test);
    }
    pair.mcnemar = run_pairs(method, baseline);
    pair
}

fn improvement(method: &[&Chosen<'_>], baseline: &[&Chosen<'_>], bootstrap: &Bootstrap) -> Option<Estimate> {
    let kinds: BTreeMap<&str, usize> = method
        .iter()
        .chain(baseline)
        .flat_map(|chosen| {
            chosen.evaluation.kinds.iter().map(|(kind, result)| (kind.as_str(), result.success.trials))
        })
        .collect();
    let (x, y) = (Scores::new(method, &kinds), Scores::new(baseline, &kinds));
    probability_of_improvement(&x.all(), &y.all()).map(|value| Estimate {
        value,
        interval: bootstrap.interval_of_runs(&[method.len(), baseline.len()], |drawn| {
            // A drawn run may have failed on all tasks of a kind.
            let pairs = x.drawn(&drawn[0]).into_iter().zip(y.drawn(&drawn[1]));
            let (x, y): (Vec<_>, Vec<_>) = pairs.filter(|(x, y)| !x.is_empty() && !y.is_empty()).unzip();
            probability_of_improvement(&x, &y).unwrap_or(0.5)
        }),
    })
}

fn differences_by_kind(method: &[&Chosen<'_>], baseline: &[&Chosen<'_>]) -> Vec<Vec<f64>> {
    let (first, second) = (by_task(method), by_task(baseline));
    let mut strata: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (task, (kind, runs)) in &first {
        if let Some((_, others)) = second.get(task) {
            strata.entry(kind).or_default().push(mean(runs) - mean(others));
        }
    }
    strata.into_values().collect()
}

/// Tests runs with the same seed, or the two runs if each method has only one. Skips runs whose
/// results are averages of several draws, because the test needs one outcome per task.
fn run_pairs(method: &[&Chosen<'_>], baseline: &[&Chosen<'_>]) -> Vec<RunPair> {
    let one_draw = |chosen: &&&Chosen<'_>| chosen.run.folders.len() <= 1;
    let mut found = Vec::new();
    for chosen in method.iter().filter(one_draw) {
        let same_seed = |other: &&&Chosen<'_>| other.run.seed.is_some() && other.run.seed == chosen.run.seed;
        let only = method.len() == 1 && baseline.len() == 1;
        let other = if only { baseline.first() } else { baseline.iter().find(same_seed) };
        let Some(other) = other.filter(one_draw) else { continue };
        let theirs: BTreeMap<usize, bool> =
            other.evaluation.outcomes.iter().map(|outcome| (outcome.task, outcome.success)).collect();
        let ours = chosen.evaluation.outcomes.iter();
        let pairs: Vec<(bool, bool)> =
            ours.filter_map(|outcome| Some((outcome.success, *theirs.get(&outcome.task)?))).collect();
        found.push(RunPair {
            run: chosen.run.name.clone(),
            baseline: other.run.name.clone(),
            test: mcnemar(&pairs),
        });
    }
    found
}
