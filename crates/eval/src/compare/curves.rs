//! Learning curves with bands over seeds.

use std::collections::BTreeMap;

use serde::Serialize;

use super::runs::RunResults;
use super::{Chosen, Estimate, difference};
use crate::statistics::{Bootstrap, mean};

/// Maximum number of resamples per point; few suffice for plotted bands.
const RESAMPLES: usize = 2_000;

/// Point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// RL step.
    pub step: u64,
    /// Number of runs that have a value at this step.
    pub runs: usize,
    /// Mean over runs, with its bootstrap interval over runs.
    #[serde(flatten)]
    pub success: Estimate,
}

/// Success of a method over steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// Method name.
    pub method: String,
    /// Points by step.
    pub points: Vec<Point>,
}

fn curve(method: &str, by_step: BTreeMap<u64, Vec<f64>>, bootstrap: Bootstrap) -> Curve {
    let bootstrap = Bootstrap { resamples: bootstrap.resamples.min(RESAMPLES), ..bootstrap };
    let points = by_step
        .into_iter()
        .map(|(step, runs)| {
            let stratum = [runs];
            let interval = bootstrap.interval(&[&stratum], |drawn| mean(&drawn[0][0]));
            let success = Estimate { value: mean(&stratum[0]), interval };
            Point { step, runs: stratum[0].len(), success }
        })
        .collect();
    Curve { method: method.to_owned(), points }
}

/// Returns the curve of success in a method's evaluations. Evaluations that differ from the one at
/// the compared step in panel, temperature, agent or number of trials are left out and listed in
/// the notes.
pub(crate) fn evaluations(
    method: &str,
    chosen: &[&Chosen<'_>],
    split: &str,
    bootstrap: Bootstrap,
    notes: &mut Vec<String>,
) -> Curve {
    let mut by_step: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    let mut left_out: Vec<String> = Vec::new();
    for Chosen { run, evaluation, .. } in chosen {
        for (step, results) in &run.evaluations {
            let Some(result) = results.iter().find(|result| result.split == split) else { continue };
            if difference(evaluation, result).is_none() {
                by_step.entry(*step).or_default().push(result.success.rate);
            } else {
                left_out.push(format!("step {step} of {}", run.name));
            }
        }
    }
    if !left_out.is_empty() {
        notes.push(format!(
            "{split}: left out of the learning curve of {method}, because another panel, temperature, agent or number of trials was \
             evaluated than the one compared: {}",
            left_out.join(", ")
        ));
    }
    curve(method, by_step, bootstrap)
}

/// Returns training success, each run smoothed by the trailing mean of up to `smooth` steps.
pub(crate) fn training(
    method: &str,
    runs: &[&RunResults],
    smooth: usize,
    bootstrap: Bootstrap,
) -> Option<Curve> {
    let mut by_step: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for run in runs {
        for (index, (step, _)) in run.training.iter().enumerate() {
            let window = &run.training[(index + 1).saturating_sub(smooth.max(1))..=index];
            let rates: Vec<f64> = window.iter().map(|(_, rate)| *rate).collect();
            by_step.entry(*step).or_default().push(mean(&rates));
        }
    }
    (!by_step.is_empty()).then(|| curve(method, by_step, bootstrap))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn training_is_smoothed_run_by_run() {
        let run = |rates: &[f64]| RunResults {
            path: "r".into(),
            name: "r".into(),
            method: "m".into(),
            seed: None,
            finished: true,
            folders: vec!["eval".into()],
            evaluations: BTreeMap::new(),
            training: rates.iter().enumerate().map(|(step, rate)| (step as u64 + 1, *rate)).collect(),
        };
        let (a, b) = (run(&[0.0, 0.5, 1.0]), run(&[1.0, 1.0]));
        let found = training("m", &[&a, &b], 2, Bootstrap::default()).unwrap();
        let values: Vec<f64> = found.points.iter().map(|point| point.success.value).collect();
        // a: 0, 0.25, 0.75; b: 1, 1.
        assert_eq!(values, [0.5, 0.625, 0.75]);
        assert_eq!(found.points.iter().map(|point| point.runs).collect::<Vec<_>>(), [2, 2, 1]);
        assert!(found.points[1].success.interval.is_some() && found.points[2].success.interval.is_none());
        assert_eq!(training("m", &[&a], 1, Bootstrap::default()).unwrap().points[1].success.value, 0.5);
        assert_eq!(training("m", &[], 2, Bootstrap::default()), None);
    }
}
