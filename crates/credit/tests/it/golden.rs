//! Every method against an independent NumPy implementation (`golden/credit.py`).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use std::collections::BTreeMap;

use serde::Deserialize;
use turnwise_core::{Batch, Group, Turn};
use turnwise_credit::gae::{Ppo, PpoConfig};
use turnwise_credit::outlier::{OutlierConfig, locate};
use turnwise_credit::{CreditConfig, Embedder, Inputs, Pipeline};

#[derive(Deserialize)]
struct Golden {
    batches: BTreeMap<String, Vec<Vec<GoldenTrajectory>>>,
    cases: Vec<Case>,
    outliers: Vec<OutlierCase>,
    ppo: Vec<PpoCase>,
}

#[derive(Deserialize)]
struct GoldenTrajectory {
    turns: Vec<GoldenTurn>,
    #[serde(rename = "final")]
    last: String,
}

#[derive(Deserialize)]
struct GoldenTurn {
    o: String,
    a: String,
    v: bool,
    r: f64,
    p: f64,
    h: Vec<f32>,
}

#[derive(Deserialize)]
struct Case {
    batch: String,
    config: CreditConfig,
    expected: Vec<Vec<Vec<f64>>>,
}

#[derive(Deserialize)]
struct OutlierCase {
    batch: String,
    config: OutlierConfig,
    scores: Vec<Vec<Vec<Option<f64>>>>,
    mask: Vec<Vec<Vec<bool>>>,
    bounds: (f64, f64),
    degenerate: bool,
}

#[derive(Deserialize)]
struct PpoCase {
    batch: String,
    config: PpoConfig,
    values: Vec<Vec<Vec<f64>>>,
    advantages: Vec<Vec<Vec<f64>>>,
    returns: Vec<Vec<Vec<f64>>>,
}

/// Counts letters and digits: the embedding of the script.
struct Letters;

impl Embedder for Letters {
    fn embed(&self, text: &str) -> Vec<f32> {
        ('a'..='z').chain('0'..='9').map(|c| text.matches(c).count() as f32).collect()
    }
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("../golden/credit.json")).unwrap()
}

fn batch(golden: &Golden, name: &str) -> Batch {
    let turn = |turn: &GoldenTurn| Turn {
        observation: turn.o.clone(),
        action: turn.a.clone(),
        valid: turn.v,
        reward: turn.r,
        progress: Some(turn.p),
        response_ids: vec![0; turn.h.len()],
        entropies: turn.h.clone(),
        ..Turn::default()
    };
    let groups = golden.batches[name].iter().enumerate().map(|(number, members)| Group {
        trajectories: members
            .iter()
            .enumerate()
            .map(|(sample, member)| {
                let turns = member.turns.iter().map(turn).collect();
                let mut trajectory = common::trajectory(number, sample, turns);
                trajectory.final_observation.clone_from(&member.last);
                trajectory
            })
            .collect(),
    });
    Batch { groups: groups.collect() }
}

/// A batch in which something every method looks at is a little different.
fn perturbed(batch: &Batch) -> Batch {
    let mut batch = batch.clone();
    for (index, turn) in batch.groups[0].trajectories.iter_mut().flat_map(|t| &mut t.turns).enumerate() {
        turn.reward += [0.0, 0.01, -0.02][index % 3];
        turn.entropies[0] *= [1.0, 1.05][index % 2];
        turn.progress = turn.progress.map(|progress| progress * 0.99);
    }
    batch
}

fn run(config: &CreditConfig, batch: &Batch) -> Vec<Vec<Vec<f64>>> {
    let inputs = Inputs { embedder: Some(&Letters), ..Inputs::new(batch) };
    Pipeline::from_config(config).unwrap().report(&inputs, false).unwrap().advantages.0
}

/// Largest difference relative to 1 + |expected|, of tables of the same shape.
fn distance(got: &[Vec<Vec<f64>>], expected: &[Vec<Vec<f64>>]) -> f64 {
    let shape = |table: &[Vec<Vec<f64>>]| -> Vec<Vec<usize>> {
        table.iter().map(|rows| rows.iter().map(Vec::len).collect()).collect()
    };
    assert_eq!(shape(got), shape(expected));
    let flat = |table: &[Vec<Vec<f64>>]| table.iter().flatten().flatten().copied().collect::<Vec<f64>>();
    flat(got)
        .iter()
        .zip(flat(expected))
        .map(|(got, expected)| (got - expected).abs() / (1.0 + expected.abs()))
        .fold(0.0, f64::max)
}

#[test]
fn advantages() {
    let golden = golden();
    assert!(golden.cases.len() > 200);
    for case in &golden.cases {
        let batch = batch(&golden, &case.batch);
        let worst = distance(&run(&case.config, &batch), &case.expected);
        assert!(worst < 1e-9, "{} {:?}: {worst}", case.batch, case.config);
        if case.batch == "mixed" {
            let worst = distance(&run(&case.config, &perturbed(&batch)), &case.expected);
            assert!(worst > 1e-6, "{:?} does not notice other input: {worst}", case.config);
        }
    }
}

#[test]
fn outliers() {
    let golden = golden();
    let (mut found, mut noticed) = (0, 0);
    for case in &golden.outliers {
        let batch = batch(&golden, &case.batch);
        let located = locate(&batch, &case.config).unwrap();
        assert_eq!(located.mask, case.mask, "{} {:?}", case.batch, case.config);
        assert_eq!(located.degenerate, case.degenerate);
        let bounds = located.bounds.unwrap();
        assert!((bounds.0 - case.bounds.0).abs() < 1e-9 && (bounds.1 - case.bounds.1).abs() < 1e-9);
        let number = |scores: &[Vec<Vec<Option<f64>>>]| -> Vec<Vec<Vec<f64>>> {
            let value = |score: &Option<f64>| score.unwrap_or(-99.0);
            scores
                .iter()
                .map(|rows| rows.iter().map(|row| row.iter().map(value).collect()).collect())
                .collect()
        };
        assert!(distance(&number(&located.scores), &number(&case.scores)) < 1e-9);
        let count = case.mask.iter().flatten().flatten().filter(|&&outlier| outlier).count();
        assert_eq!(located.low + located.high, count);
        found += count;
        if case.batch == "mixed" {
            let other = locate(&perturbed(&batch), &case.config).unwrap();
            assert!(distance(&number(&other.scores), &number(&case.scores)) > 1e-6);
            noticed += 1;
        }
    }
    assert!(found > 50 && noticed >= 4, "{found} {noticed}");
}

#[test]
fn token_advantages() {
    let golden = golden();
    for case in &golden.ppo {
        let batch = batch(&golden, &case.batch);
        let ppo = Ppo::new(case.config.clone()).unwrap();
        let inputs = Inputs { values: Some(&case.values), ..Inputs::new(&batch) };
        let tokens = ppo.tokens(&inputs).unwrap();
        assert!(distance(&tokens.advantages, &case.advantages) < 1e-9, "{:?}", case.config);
        assert!(distance(&tokens.returns, &case.returns) < 1e-9, "{:?}", case.config);
        let mut values = case.values.clone();
        values[0][0][0] += 0.01;
        let inputs = Inputs { values: Some(&values), ..Inputs::new(&batch) };
        assert!(distance(&ppo.tokens(&inputs).unwrap().advantages, &case.advantages) > 1e-6);
    }
}
