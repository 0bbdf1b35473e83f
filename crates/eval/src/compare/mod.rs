//! Compares runs of methods and seeds on shared panels.

pub mod curves;
mod draws;
pub mod methods;
pub mod pairs;
pub mod pools;
pub mod runs;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use thiserror::Error;
pub use turnwise_benchmark::Estimate;

use crate::statistics::Bootstrap;
use crate::{Agent, Evaluation};
use curves::Curve;
use methods::MethodResult;
use pairs::Pair;
use pools::Pool;
use runs::{RunFileError, RunResults};

/// Why runs cannot be compared.
#[derive(Debug, Error)]
pub enum CompareError {
    /// A run cannot be read.
    #[error(transparent)]
    Run(#[from] RunFileError),
    /// No run was given.
    #[error("no run was given; name run directories, or a sweep")]
    Nothing,
    /// A run has no evaluation.
    #[error("{run}: has no evaluation{at}; {fix}")]
    NotEvaluated {
        /// Run directory.
        run: String,
        /// Step or split of the missing evaluation, if one was requested.
        at: String,
        /// The fix.
        fix: String,
    },
    /// Two runs were evaluated differently.
    #[error(transparent)]
    Unlike(#[from] Box<Unlike>),
    /// Unknown baseline.
    #[error("--baseline {name}: no such method; there are: {known}")]
    Baseline {
        /// Requested name.
        name: String,
        /// Known methods.
        known: String,
    },
}

/// Two runs that were evaluated differently.
#[derive(Debug, Error)]
#[error(
    "{first} and {second} cannot be compared on {split}: {what} ({of_first} and {of_second}). Compare runs of one panel, \
     split and temperature, or evaluate both alike with `turnwise eval`"
)]
pub struct Unlike {
    /// First run.
    pub first: String,
    /// Second run.
    pub second: String,
    /// The split.
    pub split: String,
    /// Property that differs.
    pub what: &'static str,
    /// Value of the property in the first run.
    pub of_first: String,
    /// Value of the property in the second run.
    pub of_second: String,
}

/// Options of a comparison.
#[derive(Clone, Debug)]
pub struct CompareSettings {
    /// Baseline of all methods. If unset, `baselines` applies; methods without an entry in it are
    /// compared with the first method.
    pub baseline: Option<String>,
    /// Baseline of each method, by method name.
    pub baselines: BTreeMap<String, String>,
    /// Pools of methods whose differences from their baselines are averaged.
    pub pools: Vec<(String, Vec<String>)>,
    /// Splits to compare; empty for all.
    pub splits: Vec<String>,
    /// Step to compare; by default, the last step of each run.
    pub at: Option<u64>,
    /// Resamples and seed.
    pub bootstrap: Bootstrap,
    /// Number of steps over which training success is averaged.
    pub smooth: usize,
}

impl Default for CompareSettings {
    fn default() -> Self {
        Self {
            baseline: None,
            baselines: BTreeMap::new(),
            pools: Vec::new(),
            splits: Vec::new(),
            at: None,
            bootstrap: Bootstrap::default(),
            smooth: 10,
        }
    }
}

impl CompareSettings {
    fn baseline_of<'a>(&'a self, method: &str, first: &'a str) -> &'a str {
        let own = || self.baselines.get(method).map(String::as_str);
        self.baseline.as_deref().or_else(own).unwrap_or(first)
    }
}

/// Results of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Baseline.
    pub baseline: String,
    /// Results by split.
    pub splits: Vec<SplitComparison>,
    /// Smoothed training success by method.
    pub training: Vec<Curve>,
    /// Number of steps over which training success is averaged.
    pub smooth: usize,
    /// Notes on what could not be computed, and why.
    pub notes: Vec<String>,
}

/// Results on one panel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SplitComparison {
    /// The split.
    pub split: String,
    /// Panel hash.
    pub panel: String,
    /// Temperature; 0 is greedy.
    pub temperature: f32,
    /// Number of tasks in the panel.
    pub tasks: usize,
    /// Kinds of tasks.
    pub kinds: Vec<String>,
    /// Methods, baseline first.
    pub methods: Vec<MethodResult>,
    /// Methods with their baselines.
    pub pairs: Vec<Pair>,
    /// Averages over pairs.
    pub pools: Vec<Pool>,
    /// Evaluations over steps, by method.
    pub curves: Vec<Curve>,
}

pub(crate) struct Chosen<'a> {
    pub(crate) run: &'a RunResults,
    pub(crate) step: u64,
    pub(crate) evaluation: &'a Evaluation,
}

/// Compares runs; the runs of one method count as its seeds.
///
/// # Errors
/// Fails on runs with different or missing evaluations.
pub fn compare(runs: &[RunResults], settings: &CompareSettings) -> Result<Comparison, CompareError> {
    let first = runs.first().ok_or(CompareError::Nothing)?;
    let mut names: Vec<&str> = Vec::new();
    for run in runs {
        if !names.contains(&run.method.as_str()) {
            names.push(&run.method);
        }
    }
    let baseline = settings.baseline.clone().unwrap_or_else(|| first.method.clone());
    let Some(at) = names.iter().position(|name| *name == baseline) else {
        return Err(CompareError::Baseline { name: baseline, known: names.join(", ") });
    };
    let name = names.remove(at);
    names.insert(0, name);

    let mut notes = notes_of_runs(runs);
    let mut splits = Vec::new();
    for split in splits_of(runs, settings)? {
        let chosen = choose(runs, &split, settings.at)?;
        splits.push(compare_split(&split, &names, &chosen, settings, &mut notes));
    }
    let training = names
        .iter()
        .filter_map(|name| {
            let of_method: Vec<&RunResults> = runs.iter().filter(|run| run.method == *name).collect();
            curves::training(name, &of_method, settings.smooth, settings.bootstrap)
        })
        .collect();
    Ok(Comparison { baseline, splits, training, smooth: settings.smooth, notes })
}

fn compare_split(
    split: &str,
    names: &[&str],
    chosen: &[Chosen<'_>],
    settings: &CompareSettings,
    notes: &mut Vec<String>,
) -> SplitComparison {
    let of = |name: &str| -> Vec<&Chosen<'_>> {
        chosen.iter().filter(|chosen| chosen.run.method == name).collect()
    };
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for chosen in chosen {
        for (kind, result) in &chosen.evaluation.kinds {
            let count = kinds.entry(kind).or_default();
            *count = (*count).max(result.success.trials);
        }
    }
    for chosen in chosen.iter().filter(|chosen| chosen.evaluation.failed > 0) {
        let Evaluation { failed, success, .. } = chosen.evaluation;
        notes.push(format!(
            "{split}: {failed} of {} tasks failed in the environment or the sampler of {} and are not counted in its success; \
             evaluate it again (`turnwise eval {} --output FOLDER/`) before it is compared",
            failed + success.trials,
            chosen.run.name,
            chosen.run.path.display()
        ));
    }
    let steps: BTreeSet<u64> = chosen.iter().map(|chosen| chosen.step).collect();
    if steps.len() > 1 {
        let of_run = |chosen: &Chosen<'_>| format!("{} at {}", chosen.run.name, chosen.step);
        let list: Vec<String> = chosen.iter().map(of_run).collect();
        notes.push(format!(
            "{split}: the evaluations are of different steps ({}); --at STEP compares them at one",
            list.join(", ")
        ));
    }
    let methods: Vec<MethodResult> =
        names.iter().map(|name| methods::of_method(name, &of(name), &kinds, settings.bootstrap)).collect();
    let mut pairs = Vec::new();
    for name in names {
        let baseline = settings.baseline_of(name, names[0]);
        if baseline == *name {
            continue;
        }
        let runs = of(baseline);
        if runs.is_empty() {
            notes.push(format!("{split}: {name} is held against {baseline}, of which no run is here"));
            continue;
        }
        pairs.push(pairs::against(&of(name), &runs, settings, notes));
    }
    let pools = pools::of_split(split, &pairs, settings, notes);
    let curves = names
        .iter()
        .map(|name| curves::evaluations(name, &of(name), split, settings.bootstrap, notes))
        .collect();
    let (panel, temperature, tasks) = chosen.first().map_or((String::new(), 0.0, 0), |chosen| {
        let found = chosen.evaluation;
        let draws = chosen.run.folders.len().max(1);
        (found.panel.clone(), found.temperature, (found.success.trials + found.failed) / draws)
    });
    let kinds = kinds.into_keys().map(str::to_owned).collect();
    SplitComparison {
        split: split.to_owned(),
        panel,
        temperature,
        tasks,
        kinds,
        methods,
        pairs,
        pools,
        curves,
    }
}

/// Returns the requested splits or, if none are requested, the splits of the first run; all runs
/// must have these splits.
fn splits_of(runs: &[RunResults], settings: &CompareSettings) -> Result<Vec<String>, CompareError> {
    if !settings.splits.is_empty() {
        return Ok(settings.splits.clone());
    }
    let of_run = |run: &RunResults| -> BTreeSet<String> {
        let last = run.evaluations.last_key_value();
        last.iter().flat_map(|(_, results)| results.iter().map(|result| result.split.clone())).collect()
    };
    let mut first: Option<(&RunResults, BTreeSet<String>)> = None;
    for run in runs {
        let splits = of_run(run);
        if splits.is_empty() {
            return Err(not_evaluated(run, String::new()));
        }
        match &first {
            None => first = Some((run, splits)),
            Some((other, expected)) if *expected != splits => {
                let list =
                    |splits: &BTreeSet<String>| splits.iter().cloned().collect::<Vec<_>>().join(" and ");
                return Err(Box::new(Unlike {
                    first: other.shown(),
                    second: run.shown(),
                    split: "all splits (--split NAME chooses)".into(),
                    what: "they were evaluated on different splits",
                    of_first: list(expected),
                    of_second: list(&splits),
                })
                .into());
            }
            Some(_) => {}
        }
    }
    Ok(first.map(|(_, splits)| splits.into_iter().collect()).unwrap_or_default())
}

fn not_evaluated(run: &RunResults, at: String) -> CompareError {
    let there: Vec<String> = run.evaluations.keys().map(u64::to_string).collect();
    let fix = if there.is_empty() && run.folders.len() > 1 {
        format!("a step is compared that all of {} have", run.folders.join(", "))
    } else if there.is_empty() {
        format!(
            "train it, or write one with `turnwise eval {0} --output {0}/{1}/`",
            run.path.display(),
            run.folders.first().map_or("eval", String::as_str)
        )
    } else {
        let splits: BTreeSet<&str> =
            run.evaluations.values().flatten().map(|result| result.split.as_str()).collect();
        let splits = splits.into_iter().collect::<Vec<_>>().join(", ");
        format!("there are evaluations of steps {} (of {splits})", there.join(", "))
    };
    CompareError::NotEvaluated { run: run.shown(), at, fix }
}

/// Returns each run's evaluation at one step (default: its last). All evaluations must agree in
/// panel, temperature, agent and number of trials.
fn choose<'a>(runs: &'a [RunResults], split: &str, at: Option<u64>) -> Result<Vec<Chosen<'a>>, CompareError> {
    let mut chosen: Vec<Chosen<'a>> = Vec::new();
    for run in runs {
        let mut found = run.evaluations.iter().rev().filter(|(step, _)| at.is_none_or(|at| **step == at));
        let found = found.find_map(|(step, results)| {
            let evaluation = results.iter().find(|result| result.split == split)?;
            Some(Chosen { run, step: *step, evaluation })
        });
        let Some(found) = found else {
            let at = at.map_or_else(|| format!(" on {split}"), |at| format!(" on {split} at step {at}"));
            return Err(not_evaluated(run, at));
        };
        if let Some(first) = chosen.first() {
            check_alike(first, &found, split)?;
        }
        chosen.push(found);
    }
    Ok(chosen)
}

fn check_alike(first: &Chosen<'_>, second: &Chosen<'_>, split: &str) -> Result<(), CompareError> {
    let Some((what, of_first, of_second)) = difference(first.evaluation, second.evaluation) else {
        return Ok(());
    };
    let (first, second) = (first.run.shown(), second.run.shown());
    let split = split.to_owned();
    Err(Box::new(Unlike { first, second, split, what, of_first, of_second }).into())
}

/// Returns the first property that differs, with both values.
fn difference(a: &Evaluation, b: &Evaluation) -> Option<(&'static str, String, String)> {
    let short = |hash: &str| hash.get(..12).unwrap_or(hash).to_owned();
    let agent = |agent: Agent| format!("{agent:?}").to_lowercase();
    let trials = |result: &Evaluation| result.trials.len();
    let all = [
        ("their panels are other tasks", short(&a.panel), short(&b.panel), a.panel == b.panel),
        (
            "they were sampled at different temperatures",
            a.temperature.to_string(),
            b.temperature.to_string(),
            a.temperature == b.temperature,
        ),
        ("they were prompted by different agents", agent(a.agent), agent(b.agent), a.agent == b.agent),
        (
            "they had different numbers of trials",
            trials(a).to_string(),
            trials(b).to_string(),
            trials(a) == trials(b),
        ),
    ];
    let differing = all.into_iter().find(|(.., same)| !same);
    differing.map(|(what, of_first, of_second, _)| (what, of_first, of_second))
}

fn notes_of_runs(runs: &[RunResults]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut seen: BTreeMap<(&str, u64), &str> = BTreeMap::new();
    for run in runs {
        if !run.finished {
            notes.push(format!("{} is not finished", run.name));
        }
        if let Some(seed) = run.seed
            && let Some(other) = seen.insert((&run.method, seed), &run.name)
        {
            notes.push(format!(
                "{other} and {} are runs of {} with the same seed {seed}: they are no two draws of it",
                run.name, run.method
            ));
        }
    }
    notes
}
