//! Rewards that are equal up to rounding are treated as equal.

use turnwise_core::{Batch, Group, Turn};
use turnwise_credit::EstimatorConfig;
use turnwise_credit::gigpo::GigpoConfig;
use turnwise_credit::grpo::GrpoConfig;
use turnwise_credit::hgpo::HgpoConfig;
use turnwise_credit::rloo::RlooConfig;
use turnwise_credit::statistics::Normalize;

use crate::common;
use crate::properties::run;

/// Step returns that are 0 up to rounding are 0, also compared with others of their state.
#[test]
fn step_returns_of_rewards_that_cancel_are_no_difference() {
    let turns = |name: &str, rewards: [f64; 4]| -> Vec<Turn> {
        let turn = |(index, reward): (usize, f64)| Turn {
            reward,
            valid: true,
            observation: if index == 0 { "start".into() } else { format!("{name} {index}") },
            ..Turn::default()
        };
        rewards.into_iter().enumerate().map(turn).collect()
    };
    let (first, second) = ([0.0, 0.1, 0.2, -0.3], [0.0, -0.3, 0.1, 0.2]);
    let after = |rewards: [f64; 4]| rewards.iter().rev().fold(0.0, |sum, reward| reward + sum);
    assert_ne!(after(first), after(second), "these sums must differ, or the test shows nothing");
    let trajectories =
        vec![common::trajectory(0, 0, turns("a", first)), common::trajectory(0, 1, turns("b", second))];
    let batch = Batch { groups: vec![Group { trajectories }] };
    for estimator in [
        EstimatorConfig::Gigpo(GigpoConfig { gamma: 1.0, epsilon: 0.0, ..GigpoConfig::default() }),
        EstimatorConfig::Hgpo(HgpoConfig { gamma: 1.0, epsilon: 0.0, ..HgpoConfig::default() }),
    ] {
        let found = run(&estimator, &[], &batch);
        assert_eq!((found[(0, 0, 0)], found[(0, 1, 0)]), (0.0, 0.0), "{estimator:?}");
    }
}

#[test]
fn the_same_rewards_in_another_order_are_no_difference() {
    let turn = |reward: f64| Turn { reward, valid: true, observation: "s".into(), ..Turn::default() };
    let of = |rewards: &[f64]| rewards.iter().map(|&reward| turn(reward)).collect::<Vec<_>>();
    for (first, second) in [
        (&[0.1, 0.2, 0.3], &[0.3, 0.2, 0.1]),
        (&[-0.1, -0.1, 0.9], &[-0.1, 0.9, -0.1]),
        (&[0.1, 0.2, -0.3], &[-0.3, 0.1, 0.2]),
    ] {
        let sum = |rewards: &[f64]| rewards.iter().sum::<f64>();
        assert_ne!(sum(first), sum(second), "these sums must differ, or the test shows nothing");
        let trajectories = vec![common::trajectory(0, 0, of(first)), common::trajectory(0, 1, of(second))];
        let batch = Batch { groups: vec![Group { trajectories }] };
        let grpo = |normalize| GrpoConfig { normalize, epsilon: 0.0, ..GrpoConfig::default() };
        for estimator in [
            EstimatorConfig::Grpo(grpo(Normalize::MeanStd)),
            EstimatorConfig::Grpo(grpo(Normalize::Mean)),
            EstimatorConfig::Rloo(RlooConfig::default()),
        ] {
            let found = run(&estimator, &[], &batch);
            assert!(found.values().all(|&advantage| advantage == 0.0), "{estimator:?}: {found:?}");
        }
        let mut other = batch.clone();
        other.groups[0].trajectories[1].turns[0].reward += 1e-9;
        let found = run(&EstimatorConfig::Rloo(RlooConfig::default()), &[], &other);
        assert!(found.values().all(|&advantage| advantage != 0.0), "{found:?}");
    }
}
