//! A method against the baseline, on the same tasks.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Chosen, Estimate};
use crate::statistics::{
    Bootstrap, McNemar, PairedTest, mcnemar, mean, paired_permutation, probability_of_improvement, student,
};

/// McNemar's test of two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunPair {
    /// The method's run.
    pub run: String,
    /// The baseline's.
    pub baseline: String,
    /// The test; its first run is the method's.
    #[serde(flatten)]
    pub test: McNemar,
}

/// A method and the baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// The method.
    pub method: String,
    /// The baseline.
    pub baseline: String,
    /// Difference of the mean success over the tasks that all runs played, with a bootstrap interval over tasks, stratified
    /// by kind. Without outcomes of tasks: of the success rates, without an interval.
    pub difference: Estimate,
    /// Mean difference of the success rates of runs with the same seed, with Student's interval over those seeds: what other seeds
    /// would give on these tasks. None where fewer than two seeds are in both.
    pub over_seeds: Option<Estimate>,
    /// Probability that a run of the method is better than one of the baseline on a kind drawn at random, with a bootstrap interval over
    /// seeds.
    pub improvement: Option<Estimate>,
    /// Paired permutation test by task over seeds.
    pub permutation: Option<PairedTest>,
    /// McNemar's exact test of each pair of runs with the same seed, or of the only two.
    pub mcnemar: Vec<RunPair>,
}

/// Mean success by task of a method's runs: the kind, and how many runs played it.
fn by_task<'a>(chosen: &[&Chosen<'a>]) -> BTreeMap<usize, (&'a str, Vec<f64>)> {
    let mut found: BTreeMap<usize, (&str, Vec<f64>)> = BTreeMap::new();
    for chosen in chosen {
        for outcome in chosen.evaluation.outcomes.iter() {
            let entry = found.entry(outcome.task).or_insert_with(|| (&outcome.kind, Vec::new()));
            entry.1.push(f64::from(u8::from(outcome.success)));
        }
    }
    // What one run's environment failed is not compared.
    found.retain(|_, (_, runs)| runs.len() == chosen.len());
    found
}

/// The difference by pairs of runs with the same seed.
fn over_seeds(method: &[&Chosen<'_>], baseline: &[&Chosen<'_>]) -> Option<Estimate> {
    let rates = |chosen: &[&Chosen<'_>]| -> BTreeMap<u64, f64> {
        let of_run =
            |chosen: &&Chosen<'_>| chosen.run.seed.map(|seed| (seed, chosen.evaluation.success.rate));
        chosen.iter().filter_map(of_run).collect()
    };
    let theirs = rates(baseline);
    let differences: Vec<f64> =
        rates(method).iter().filter_map(|(seed, rate)| Some(rate - theirs.get(seed)?)).collect();
    let interval = student(&differences)?;
    Some(Estimate { value: mean(&differences), interval: Some(interval) })
}

pub(crate) fn against(
    method: &[&Chosen<'_>],
    baseline: &[&Chosen<'_>],
    bootstrap: Bootstrap,
    notes: &mut Vec<String>,
) -> Pair {
    let name =
        |chosen: &[&Chosen<'_>]| chosen.first().map(|chosen| chosen.run.method.clone()).unwrap_or_default();
    let (of_method, of_baseline) = (name(method), name(baseline));
    let kinds: BTreeMap<&str, usize> = method
        .iter()
        .chain(baseline)
        .flat_map(|chosen| {
            chosen.evaluation.kinds.iter().map(|(kind, result)| (kind.as_str(), result.success.trials))
        })
        .collect();
    let (x, y) = (super::methods::scores(method, &kinds), super::methods::scores(baseline, &kinds));
    let improvement = probability_of_improvement(&x, &y).map(|value| Estimate {
        value,
        interval: bootstrap
            .interval(&[&x, &y], |drawn| probability_of_improvement(&drawn[0], &drawn[1]).unwrap_or(0.5)),
    });
    let success = |chosen: &[&Chosen<'_>]| {
        mean(&chosen.iter().map(|chosen| chosen.evaluation.success.rate).collect::<Vec<_>>())
    };
    let mut pair = Pair {
        difference: Estimate { value: success(method) - success(baseline), interval: None },
        method: of_method,
        baseline: of_baseline,
        over_seeds: over_seeds(method, baseline),
        improvement,
        permutation: None,
        mcnemar: Vec::new(),
    };
    let without = method.iter().chain(baseline).find(|chosen| chosen.evaluation.outcomes.is_empty());
    if let Some(chosen) = without {
        let (root, step) = (chosen.run.path.display(), chosen.step);
        notes.push(format!(
            "no paired tests of {} and {}: {root}/eval/step-{step:06}.json was written without outcomes of tasks; where this is the \
             newest checkpoint, `turnwise eval {root} --out {root}/eval/step-{step:06}.json` adds them",
            pair.method, pair.baseline
        ));
        return pair;
    }
    let (first, second) = (by_task(method), by_task(baseline));
    let mut strata: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (task, (kind, runs)) in &first {
        if let Some((_, others)) = second.get(task) {
            strata.entry(kind).or_default().push(mean(runs) - mean(others));
        }
    }
    let strata: Vec<Vec<f64>> = strata.into_values().collect();
    let differences = strata.concat();
    if let Some(test) = paired_permutation(&differences, bootstrap.resamples, bootstrap.seed) {
        let interval = bootstrap.interval(&[&strata], |drawn| mean(&drawn[0].concat()));
        pair.difference = Estimate { value: test.difference, interval };
        pair.permutation = Some(test);
    }
    for chosen in method {
        let same_seed = |other: &&&Chosen<'_>| other.run.seed.is_some() && other.run.seed == chosen.run.seed;
        let only = method.len() == 1 && baseline.len() == 1;
        let other = if only { baseline.first() } else { baseline.iter().find(same_seed) };
        if let Some(other) = other {
            let theirs: BTreeMap<usize, bool> =
                other.evaluation.outcomes.iter().map(|outcome| (outcome.task, outcome.success)).collect();
            let ours = chosen.evaluation.outcomes.iter();
            let pairs: Vec<(bool, bool)> =
                ours.filter_map(|outcome| Some((outcome.success, *theirs.get(&outcome.task)?))).collect();
            pair.mcnemar.push(RunPair {
                run: chosen.run.name.clone(),
                baseline: other.run.name.clone(),
                test: mcnemar(&pairs),
            });
        }
    }
    pair
}
