//! Every method: golden numbers of an independent NumPy implementation (`golden/credit.py`).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use std::collections::BTreeMap;

use serde::Deserialize;
use turnwise_core::{Batch, Group, PerToken, PerTurn, Table, Task, Turn, Unit};
use turnwise_credit::gae::{Ppo, PpoConfig, TokenAdvantages};
use turnwise_credit::monte_carlo::MonteCarloConfig;
use turnwise_credit::outlier::{OutlierConfig, locate};
use turnwise_credit::turn_ppo::{TurnPpo, TurnPpoConfig};
use turnwise_credit::{
    CreditConfig, CreditInputs, Embedder, EstimatorConfig, ModelInputs, Pipeline, RefinementConfig,
};

#[derive(Deserialize)]
struct Golden {
    batches: BTreeMap<String, Vec<Vec<GoldenTrajectory>>>,
    cases: Vec<Case>,
    outliers: Vec<OutlierCase>,
    ppo: Vec<CriticCase<PpoConfig>>,
    turn_ppo: Vec<CriticCase<TurnPpoConfig>>,
    monte_carlo: Vec<ValueCase>,
    scored: Vec<ScoredCase>,
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
    expected: PerTurn<f64>,
}

#[derive(Deserialize)]
struct OutlierCase {
    batch: String,
    config: OutlierConfig,
    scores: PerTurn<Option<f64>>,
    mask: PerTurn<bool>,
    bounds: (f64, f64),
    degenerate: bool,
}

#[derive(Deserialize)]
struct CriticCase<C> {
    batch: String,
    config: C,
    values: PerToken<f64>,
    advantages: PerToken<f64>,
    returns: PerToken<f64>,
}

#[derive(Deserialize)]
struct ValueCase {
    batch: String,
    config: MonteCarloConfig,
    values: PerTurn<f64>,
    advantages: PerTurn<f64>,
}

type Lists = PerTurn<Vec<f32>>;

#[derive(Deserialize)]
struct ScoredCase {
    batch: String,
    refinement: RefinementConfig,
    own: Option<Lists>,
    scores: Lists,
    expected: PerTurn<f64>,
}

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

fn perturbed(batch: &Batch) -> Batch {
    let mut batch = batch.clone();
    for (index, turn) in batch.groups[0].trajectories.iter_mut().flat_map(|t| &mut t.turns).enumerate() {
        turn.reward += [0.0, 0.01, -0.02][index % 3];
        turn.entropies[0] *= [1.0, 1.05][index % 2];
        turn.progress = turn.progress.map(|progress| progress * 0.99);
    }
    batch
}

fn run(config: &CreditConfig, batch: &Batch) -> PerTurn<f64> {
    let inputs = CreditInputs::new(batch).with_embedder(&Letters);
    Pipeline::from_config(config).unwrap().report(&inputs, false).unwrap().advantages
}

/// Returns the largest difference relative to 1 + |expected|; the shapes must be equal.
fn distance<U: Unit>(got: &Table<f64, U>, expected: &Table<f64, U>) -> f64 {
    fn lengths<U: Unit>(table: &Table<f64, U>) -> Vec<usize> {
        table.rows().map(<[f64]>::len).collect()
    }
    assert_eq!((got.len(), lengths(got)), (expected.len(), lengths(expected)));
    got.zip(expected, |got, expected| (got - expected).abs() / (1.0 + expected.abs()))
        .values()
        .copied()
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
        let number = |scores: &PerTurn<Option<f64>>| scores.map(|score| score.unwrap_or(-99.0));
        assert!(distance(&number(&located.scores), &number(&case.scores)) < 1e-9);
        let count = case.mask.values().filter(|&&outlier| outlier).count();
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

fn check_critic_cases<C: std::fmt::Debug>(
    golden: &Golden,
    cases: &[CriticCase<C>],
    tokens: impl Fn(&C, &CreditInputs<'_>) -> TokenAdvantages,
) {
    assert!(cases.len() >= 9);
    for case in cases {
        let batch = batch(golden, &case.batch);
        let of = |values: PerToken<f64>| {
            let model_inputs = ModelInputs { values: Some(values), ..ModelInputs::default() };
            tokens(&case.config, &CreditInputs::new(&batch).with_model_inputs(&model_inputs))
        };
        let found = of(case.values.clone());
        assert!(distance(&found.advantages, &case.advantages) < 1e-9, "{:?}", case.config);
        assert!(distance(&found.returns, &case.returns) < 1e-9, "{:?}", case.config);
        let mut values = case.values.clone();
        values[(0, 0, 0)] += 0.01;
        assert!(
            distance(&of(values).advantages, &case.advantages) > 1e-6,
            "{:?} notices nothing",
            case.config
        );
    }
}

#[test]
fn token_advantages() {
    let golden = golden();
    check_critic_cases(&golden, &golden.ppo, |config, inputs| {
        Ppo::new(config.clone()).unwrap().tokens(inputs).unwrap()
    });
}

#[test]
fn turn_advantages_of_a_critic() {
    let golden = golden();
    check_critic_cases(&golden, &golden.turn_ppo, |config, inputs| {
        TurnPpo::new(config.clone()).unwrap().tokens(inputs).unwrap()
    });
}

#[test]
fn advantages_of_measured_values() {
    let golden = golden();
    assert!(golden.monte_carlo.len() >= 12);
    for case in &golden.monte_carlo {
        let estimator = EstimatorConfig::MonteCarlo(case.config.clone());
        let config = CreditConfig { estimator, ..CreditConfig::default() };
        let of = |values: &PerTurn<f64>| {
            let mut batch = batch(&golden, &case.batch);
            for ((group, trajectory, turn), &value) in values.iter() {
                batch.groups[group].trajectories[trajectory].turns[turn].state_value = Some(value);
            }
            run(&config, &batch)
        };
        assert!(distance(&of(&case.values), &case.advantages) < 1e-9, "{} {:?}", case.batch, case.config);
        let mut values = case.values.clone();
        values[(0, 0, 0)] += 0.01;
        assert!(distance(&of(&values), &case.advantages) > 1e-6, "{:?} notices nothing", case.config);
    }
}

#[test]
fn advantages_of_scored_texts() {
    let golden = golden();
    assert_eq!(golden.scored.len(), 24);
    for case in &golden.scored {
        let config = CreditConfig { refinements: vec![case.refinement.clone()], ..CreditConfig::default() };
        let pipeline = Pipeline::from_config(&config).unwrap();
        let mut batch = batch(&golden, &case.batch);
        for trajectory in batch.groups.iter_mut().flat_map(|group| &mut group.trajectories) {
            trajectory.task.metadata.insert(Task::ANSWER.into(), "yes".into());
        }
        for (place, own) in case.own.iter().flat_map(PerTurn::iter) {
            let (group, trajectory, turn) = place;
            batch.groups[group].trajectories[trajectory].turns[turn].old_logprobs.clone_from(own);
        }
        let of = |scores: &Lists| {
            let scores = vec![Vec::new(), scores.values().cloned().collect()];
            let model_inputs = ModelInputs { scores, ..ModelInputs::default() };
            pipeline
                .report(&CreditInputs::new(&batch).with_model_inputs(&model_inputs), false)
                .unwrap()
                .advantages
        };
        let worst = distance(&of(&case.scores), &case.expected);
        assert!(worst < 1e-9, "{} {:?}: {worst}", case.batch, case.refinement);
        // Lower each turn's log-probs by a different amount, because IGPO standardizes.
        let mut lower = case.scores.clone();
        for (index, list) in lower.values_mut().enumerate() {
            for value in list {
                *value -= [0.05, 0.0, 0.1][index % 3];
            }
        }
        let worst = distance(&of(&lower), &case.expected);
        assert!(worst > 1e-6, "{} {:?} notices nothing: {worst}", case.batch, case.refinement);
    }
}
