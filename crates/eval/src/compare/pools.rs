//! Averages the effect of one change over several baselines, because a single pair may be too
//! noisy.
//!
//! Runs with the same seed share their warm start and tasks, so the pairs' differences are first
//! averaged per seed, and the interval is then over seeds.

use std::collections::BTreeMap;

use serde::Serialize;

use super::pairs::{Pair, SeedDifferences};
use super::{CompareSettings, Estimate};
use crate::statistics::{mean, student};

/// Averaged differences of several pairs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pool {
    /// Pool name.
    pub name: String,
    /// Methods and their baselines.
    pub pairs: Vec<(String, String)>,
    /// Seeds that all pairs have.
    pub seeds: Vec<u64>,
    /// Mean difference `1/S sum_s 1/P sum_p (method_ps - baseline_ps)` with Student's interval over
    /// seeds.
    pub difference: Estimate,
    /// Mean difference of training success ([`Pair::training`]), with an interval over seeds.
    pub training: Option<Estimate>,
}

fn averaged(pairs: &[&SeedDifferences]) -> BTreeMap<u64, f64> {
    let Some((first, others)) = pairs.split_first() else {
        return BTreeMap::new();
    };
    let of_seed = |(seed, difference): (&u64, &f64)| {
        let theirs: Option<Vec<f64>> = others.iter().map(|pair| pair.get(seed).copied()).collect();
        Some((*seed, mean(&[vec![*difference], theirs?].concat())))
    };
    first.iter().filter_map(of_seed).collect()
}

pub(super) fn estimate(differences: &BTreeMap<u64, f64>) -> Option<Estimate> {
    let values: Vec<f64> = differences.values().copied().collect();
    let interval = student(&values)?;
    Some(Estimate { value: mean(&values), interval: Some(interval) })
}

/// Returns the pools whose pairs are all present and share at least two seeds; all other pools are
/// listed in the notes.
pub(super) fn of_split(
    split: &str,
    pairs: &[Pair],
    settings: &CompareSettings,
    notes: &mut Vec<String>,
) -> Vec<Pool> {
    let mut found = Vec::new();
    for (name, members) in &settings.pools {
        let of_member = |member: &String| pairs.iter().find(|pair| pair.method == *member);
        let absent: Vec<&str> =
            members.iter().filter(|member| of_member(member).is_none()).map(String::as_str).collect();
        if !absent.is_empty() {
            notes.push(format!(
                "{split}: the pool {name} is left out; without runs, or without a baseline's: {}",
                absent.join(", ")
            ));
            continue;
        }
        let pairs: Vec<&Pair> = members.iter().filter_map(of_member).collect();
        let of = |differences: fn(&Pair) -> &SeedDifferences| {
            averaged(&pairs.iter().map(|pair| differences(pair)).collect::<Vec<_>>())
        };
        let evaluated = of(|pair| &pair.by_seed);
        let Some(difference) = estimate(&evaluated) else {
            notes.push(format!(
                "{split}: the pool {name} is left out; its pairs have {} seeds in common, and an interval needs two",
                evaluated.len()
            ));
            continue;
        };
        found.push(Pool {
            name: name.clone(),
            pairs: pairs.iter().map(|pair| (pair.method.clone(), pair.baseline.clone())).collect(),
            seeds: evaluated.into_keys().collect(),
            difference,
            training: estimate(&of(|pair| &pair.training_by_seed)),
        });
    }
    found
}
