//! Results of one method over its seeds.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Chosen, Estimate};
use crate::interval::{wilson, wilson_of_rate};
use crate::statistics::{Bootstrap, Interval, iqm, mean};

/// What an interval generalizes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// The interval generalizes to other runs of the method, on the same tasks.
    Seeds,
    /// The interval generalizes to other tasks, with the same run.
    Tasks,
}

/// A run of a method.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Seed {
    /// Run name.
    pub run: String,
    /// Seed.
    pub seed: Option<u64>,
    /// Evaluated step.
    pub step: u64,
    /// Success rate on the panel.
    pub success: f64,
}

/// Results of a method on one panel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MethodResult {
    /// Method name.
    pub method: String,
    /// The method's runs, one for each seed.
    pub seeds: Vec<Seed>,
    /// What the intervals generalize to: other tasks if there is only one seed, otherwise other
    /// seeds.
    pub over: Over,
    /// Success rate on the panel, averaged over seeds.
    pub success: Estimate,
    /// Interquartile mean over seeds and kinds; all kinds have equal weight.
    pub iqm: Estimate,
    /// Mean success rate by kind.
    pub kinds: BTreeMap<String, Estimate>,
    /// Mean number of turns.
    pub mean_turns: f64,
}

/// Success rate of each kind in each run; `None` if there are no tasks of the kind.
pub(crate) struct Scores(Vec<Vec<Option<f64>>>);

impl Scores {
    pub(crate) fn new(chosen: &[&Chosen<'_>], kinds: &BTreeMap<&str, usize>) -> Self {
        let of_kind = |kind: &&str| {
            let rate = |chosen: &&Chosen<'_>| Some(chosen.evaluation.kinds.get(*kind)?.success.rate);
            chosen.iter().map(rate).collect()
        };
        Self(kinds.keys().map(of_kind).collect())
    }

    pub(crate) fn all(&self) -> Vec<Vec<f64>> {
        self.0.iter().map(|rates| rates.iter().copied().flatten().collect()).collect()
    }

    pub(crate) fn drawn(&self, runs: &[usize]) -> Vec<Vec<f64>> {
        self.0.iter().map(|rates| runs.iter().filter_map(|&run| rates[run]).collect()).collect()
    }
}

/// Returns `sum_k T_k / T mean_n x_kn`, the panel's mean success, with `T_k` tasks of kind `k`.
fn weighted(scores: &[Vec<f64>], tasks: &[f64]) -> f64 {
    let known = scores.iter().zip(tasks).filter(|(runs, _)| !runs.is_empty());
    let (sum, all) =
        known.fold((0.0, 0.0), |(sum, all), (runs, tasks)| (sum + tasks * mean(runs), all + tasks));
    if all == 0.0 { 0.0 } else { sum / all }
}

pub(crate) fn of_method(
    name: &str,
    chosen: &[&Chosen<'_>],
    kinds: &BTreeMap<&str, usize>,
    bootstrap: Bootstrap,
) -> MethodResult {
    let of_runs = Scores::new(chosen, kinds);
    let scores = of_runs.all();
    let runs = [chosen.len()];
    let tasks: Vec<f64> = kinds.values().map(|count| *count as f64).collect();
    let over = if chosen.len() > 1 { Over::Seeds } else { Over::Tasks };
    let single = |kind: Option<&str>| {
        let (evaluation, draws) = (chosen.first()?.evaluation, chosen.first()?.run.folders.len().max(1));
        let rate =
            kind.map_or(Some(&evaluation.success), |kind| Some(&evaluation.kinds.get(kind)?.success))?;
        let (low, high) = match draws {
            1 => wilson(rate.successes, rate.trials),
            _ => wilson_of_rate(rate.rate, rate.trials as f64 / draws as f64),
        };
        Some(Interval { low, high })
    };
    let seeds: Vec<Seed> = chosen
        .iter()
        .map(|chosen| Seed {
            run: chosen.run.name.clone(),
            seed: chosen.run.seed,
            step: chosen.step,
            success: chosen.evaluation.success.rate,
        })
        .collect();
    let success = Estimate {
        value: mean(&seeds.iter().map(|seed| seed.success).collect::<Vec<_>>()),
        interval: match over {
            Over::Seeds => {
                bootstrap.interval_of_runs(&runs, |drawn| weighted(&of_runs.drawn(&drawn[0]), &tasks))
            }
            Over::Tasks => single(None),
        },
    };
    let all = |strata: &[Vec<f64>]| iqm(&strata.concat());
    // A single run has no interval over seeds, and a mean over kinds has none over tasks.
    let iqm = Estimate {
        value: all(&scores),
        interval: bootstrap.interval_of_runs(&runs, |drawn| all(&of_runs.drawn(&drawn[0]))),
    };
    let of_kind = |(kind, runs): (&&str, &Vec<f64>)| {
        let stratum = [runs.clone()];
        let interval = match over {
            Over::Seeds => bootstrap.interval(&[&stratum], |drawn| mean(&drawn[0][0])),
            Over::Tasks => single(Some(kind)),
        };
        ((*kind).to_owned(), Estimate { value: mean(runs), interval })
    };
    let kinds = kinds.keys().zip(&scores).filter(|(_, runs)| !runs.is_empty()).map(of_kind).collect();
    let turns: Vec<f64> = chosen.iter().map(|chosen| chosen.evaluation.mean_turns).collect();
    MethodResult { method: name.to_owned(), seeds, over, success, iqm, kinds, mean_turns: mean(&turns) }
}
