//! Turn-level credit: turn credit, RTMC, Turn-PPO, Monte-Carlo advantages, and HAS's unbiased
//! baseline.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{self, turn};
use proptest::prelude::*;
use turnwise_core::{Batch, Group, PerToken, PerTurn, Turn};
use turnwise_credit::gae::{Ppo, PpoConfig};
use turnwise_credit::has::{HasConfig, TurnBaseline};
use turnwise_credit::monte_carlo::MonteCarloConfig;
use turnwise_credit::rtmc::RtmcConfig;
use turnwise_credit::turn_credit::{TurnCreditConfig, progress, smear};
use turnwise_credit::turn_ppo::{TurnPpo, TurnPpoConfig};
use turnwise_credit::{CreditConfig, CreditInputs, EstimatorConfig, ModelInputs, Pipeline, RefinementConfig};

fn run(estimator: EstimatorConfig, refinements: Vec<RefinementConfig>, batch: &Batch) -> PerTurn<f64> {
    let config = CreditConfig { estimator, refinements, ..CreditConfig::default() };
    Pipeline::from_config(&config).unwrap().run(batch).unwrap()
}

fn batches() -> impl Strategy<Value = Batch> {
    let turns = (0..4_u8, 0..2_u8, -4..5_i8, 0..=8_u8, 1..4_usize).prop_map(
        |(state, action, reward, level, tokens)| Turn {
            action: format!("act {action}"),
            progress: Some(f64::from(level) / 8.0),
            response_ids: vec![0; tokens],
            ..turn(&format!("state {state}"), f64::from(reward) / 4.0)
        },
    );
    let group = prop::collection::vec(prop::collection::vec(turns, 1..6), 1..6);
    prop::collection::vec(group, 1..3).prop_map(|groups| {
        let group = |(number, members): (usize, Vec<Vec<Turn>>)| Group {
            trajectories: members
                .into_iter()
                .enumerate()
                .map(|(sample, turns)| common::trajectory(number, sample, turns))
                .collect(),
        };
        Batch { groups: groups.into_iter().enumerate().map(group).collect() }
    })
}

#[test]
fn progress_is_what_a_turn_changed_and_unscored_turns_pass_it_on() {
    let levels = [Some(0.25), None, Some(0.5), Some(0.125), None];
    assert_eq!(progress(&levels, false), [0.0, 0.0, 0.25, -0.375, 0.0]);
    assert_eq!(progress(&levels, true), [0.25, 0.0, 0.25, -0.375, 0.0]);
    assert_eq!(progress(&[None, Some(0.5)], true), [0.0, 0.5]);
    // The third turn's progress is divided by 1 + 1/2 + 1/4: 4/7, 2/7 and 1/7.
    let credits = smear(&[0.0, 0.0, 7.0], 0.5);
    assert!(
        credits.iter().zip([1.0, 2.0, 4.0]).all(|(got, expected)| (got - expected).abs() < 1e-12),
        "{credits:?}"
    );
    assert_eq!(smear(&[1.0, 2.0], 0.0), [1.0, 2.0]);
    assert_eq!(smear(&[0.0, 2.0], 1.0), [1.0, 1.0]);
}

#[test]
fn a_trajectory_without_any_progress_is_named() {
    let mut batch = common::peer_batch();
    for trajectory in &mut batch.groups[0].trajectories {
        trajectory.turns[1].progress = Some(0.5);
    }
    let pipeline = |kind: &str| {
        let text = format!(r#"{{"refinements": [{{"kind": "turn-credit"{kind}}}]}}"#);
        Pipeline::from_config(&serde_json::from_str(&text).unwrap())
    };
    assert!(pipeline("").unwrap().run(&batch).is_ok());
    batch.groups[0].trajectories[1].turns[1].progress = None;
    let error = pipeline("").unwrap().run(&batch).unwrap_err().to_string();
    assert!(error.contains("turn-credit needs `progress`") && error.contains("trajectory 1"), "{error}");
    assert!(pipeline(r#", "gamma": 1.5"#).err().unwrap().to_string().contains("gamma = 1.5"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn turn_credit_moves_credit_between_turns_and_adds_none(batch in batches(), gamma in 0.0..=1.0_f64) {
        let shift = TurnCreditConfig { gamma, net_progress: false, ..TurnCreditConfig::default() };
        let plain = run(EstimatorConfig::default(), Vec::new(), &batch);
        let shifted = run(EstimatorConfig::default(), vec![RefinementConfig::TurnCredit(shift.clone())], &batch);
        for (group, of_group) in batch.groups.iter().enumerate() {
            for (member, trajectory) in of_group.trajectories.iter().enumerate() {
                let sum = |table: &PerTurn<f64>| -> f64 {
                    let turns = trajectory.turns.iter().enumerate();
                    turns.map(|(turn, data)| data.response_ids.len() as f64 * table[(group, member, turn)]).sum()
                };
                prop_assert!((sum(&plain) - sum(&shifted)).abs() < 1e-9, "{} {}", sum(&plain), sum(&shifted));
            }
        }
        let off = RefinementConfig::TurnCredit(TurnCreditConfig { beta: 0.0, ..shift });
        prop_assert_eq!(run(EstimatorConfig::default(), vec![off], &batch), plain);
    }

    #[test]
    fn a_smear_keeps_the_sum(values in prop::collection::vec(-1.0..1.0_f64, 0..12), gamma in 0.0..=1.0_f64) {
        let sum: f64 = smear(&values, gamma).iter().sum();
        prop_assert!((sum - values.iter().sum::<f64>()).abs() < 1e-9);
    }

    #[test]
    fn advantages_of_a_state_sum_to_zero_over_its_first_visits(batch in batches()) {
        // Only a rollout's first time in a (state, action) counts; without repeats, all turns
        // count.
        let config = RtmcConfig { prior: 0.0, invalid_penalty: 0.0, ..RtmcConfig::default() };
        let mut batch = batch;
        for trajectory in batch.groups.iter_mut().flat_map(|group| &mut group.trajectories) {
            for (index, turn) in trajectory.turns.iter_mut().enumerate() {
                turn.observation = format!("{} at {index}", turn.observation);
            }
        }
        let advantages = run(EstimatorConfig::Rtmc(config), Vec::new(), &batch);
        for (group, of_group) in batch.groups.iter().enumerate() {
            let mut sums = std::collections::BTreeMap::<&str, f64>::new();
            for (member, trajectory) in of_group.trajectories.iter().enumerate() {
                for (turn, data) in trajectory.turns.iter().enumerate() {
                    *sums.entry(&data.observation).or_default() += advantages[(group, member, turn)];
                }
            }
            prop_assert!(sums.values().all(|sum| sum.abs() < 1e-9), "{sums:?}");
        }
    }

    #[test]
    fn turns_of_one_token_have_the_advantages_of_tokens(batch in batches(), gamma in 0.0..=1.0_f64, lambda in 0.0..=1.0_f64) {
        let mut batch = batch;
        batch.groups.iter_mut().flat_map(|g| &mut g.trajectories).flat_map(|t| &mut t.turns).for_each(|turn| {
            turn.response_ids = vec![0];
        });
        let value = |place: usize| ((place * 37 % 11) as f64 - 5.0) / 4.0;
        let rows: Vec<Vec<Vec<f64>>> = batch.groups.iter().map(|group| {
            group.trajectories.iter().map(|t| (0..t.turns.len()).map(value).collect()).collect()
        }).collect();
        let model_inputs = ModelInputs { values: Some(PerToken::from(rows)), ..ModelInputs::default() };
        let inputs = CreditInputs::new(&batch).with_model_inputs(&model_inputs);
        let turns = TurnPpo::new(TurnPpoConfig { gamma, lambda, ..TurnPpoConfig::default() }).unwrap();
        let tokens = Ppo::new(PpoConfig { gamma, lambda, ..PpoConfig::default() }).unwrap();
        prop_assert_eq!(turns.tokens(&inputs).unwrap(), tokens.tokens(&inputs).unwrap());
    }
}

#[test]
fn rollouts_that_meet_in_a_state_are_compared_there() {
    let act = |state: &str, action: &str, reward: f64| Turn { action: action.into(), ..turn(state, reward) };
    // Two rollouts visit `hall` and take different actions. The third leaves the path at the start.
    let batch = Batch {
        groups: vec![common::group(vec![
            vec![act("start", "go", 0.0), act("hall", "left", 1.0)],
            vec![act("start", "go", 0.0), act("hall", "right", 0.0)],
            vec![act("start", "stay", 0.0)],
        ])],
    };
    let of = |prior| {
        let config = RtmcConfig { prior, ..RtmcConfig::default() };
        run(EstimatorConfig::Rtmc(config), Vec::new(), &batch)
    };
    // start: V = 1/3, Q(go) = 1/2, Q(stay) = 0. hall: V = 1/2.
    let expected = [vec![1.0 / 6.0, 0.5], vec![1.0 / 6.0, -0.5], vec![-1.0 / 3.0]];
    for (got, expected) in of(0.0)[0].iter().flatten().zip(expected.iter().flatten()) {
        assert!((got - expected).abs() < 1e-12, "{got} {expected}");
    }
    // Prior of one rollout: V(hall) = (1 + 1/3) / 3 = 4/9, Q(left) = (1 + 4/9) / 2 = 13/18.
    assert!((of(1.0)[(0, 0, 1)] - (13.0 / 18.0 - 4.0 / 9.0)).abs() < 1e-12);
    // Equal returns give exactly 0 for any prior.
    let mut equal = batch.clone();
    equal.groups[0].trajectories.iter_mut().for_each(|t| t.turns.last_mut().unwrap().reward = 0.1);
    let config = RtmcConfig { prior: 0.7, ..RtmcConfig::default() };
    assert!(
        run(EstimatorConfig::Rtmc(config), Vec::new(), &equal).values().all(|&advantage| advantage == 0.0)
    );
}

/// A policy's probabilities: to continue after the first turn, and of the first of two actions at
/// the second.
const GO: f64 = 0.6;
const FIRST: f64 = 0.3;

/// The policy's three trajectories: probability, credits of its turns, and derivatives of each
/// turn's log-prob with respect to the two logits.
fn trajectories() -> [(f64, Vec<f64>, Vec<[f64; 2]>); 3] {
    [
        (1.0 - GO, vec![0.5], vec![[-GO, 0.0]]),
        (GO * FIRST, vec![0.25, 1.0], vec![[1.0 - GO, 0.0], [0.0, 1.0 - FIRST]]),
        (GO * (1.0 - FIRST), vec![0.25, 0.125], vec![[1.0 - GO, 0.0], [0.0, -FIRST]]),
    ]
}

/// Returns the exact expected policy gradient of HAS's turn credits per trajectory, over groups of
/// three.
fn expected_gradient(baseline: Option<TurnBaseline>) -> [f64; 2] {
    let all = trajectories();
    let mut gradient = [0.0; 2];
    for place in 0..27_usize {
        let members: Vec<usize> = (0..3_u32).map(|index| place / 3_usize.pow(index) % 3).collect();
        let probability: f64 = members.iter().map(|&member| all[member].0).product();
        let turns = |(sample, &member): (usize, &usize)| {
            let credits = all[member].1.iter().enumerate();
            // Different rewards keep the group from being skipped; alpha = 0 leaves only the turn
            // credits.
            let reward = |turn: usize| if turn == 0 { sample as f64 } else { 0.0 };
            credits
                .map(|(turn, &credit)| Turn { progress: Some(credit), ..common::turn("s", reward(turn)) })
                .collect()
        };
        let batch = Batch { groups: vec![common::group(members.iter().enumerate().map(turns).collect())] };
        let advantages = baseline.map(|baseline| {
            let has = HasConfig { alpha: 0.0, baseline, ..HasConfig::default() };
            run(EstimatorConfig::default(), vec![RefinementConfig::Has(has)], &batch)
        });
        for (sample, &member) in members.iter().enumerate() {
            for (turn, slopes) in all[member].2.iter().enumerate() {
                let advantage =
                    advantages.as_ref().map_or(all[member].1[turn], |table| table[(0, sample, turn)]);
                for (sum, slope) in gradient.iter_mut().zip(slopes) {
                    *sum += probability * advantage * slope / 3.0;
                }
            }
        }
    }
    gradient
}

#[test]
fn a_leave_one_out_baseline_keeps_the_expected_gradient_where_the_policy_stops() {
    let plain = expected_gradient(None);
    let unbiased = expected_gradient(Some(TurnBaseline::LeaveOneOut));
    assert!(
        plain.iter().zip(unbiased).all(|(plain, other)| (plain - other).abs() < 1e-12),
        "{plain:?} {unbiased:?}"
    );
    // The z-score's gradient is not a multiple of it: the two logits have different factors.
    let biased = expected_gradient(Some(TurnBaseline::ZScore));
    let factors = [biased[0] / plain[0], biased[1] / plain[1]];
    assert!((factors[0] / factors[1] - 1.0).abs() > 0.1, "{factors:?}");
}

#[test]
fn a_baseline_of_others_has_no_floor_and_nothing_for_one() {
    let text = r#"{"refinements": [{"kind": "has", "baseline": "leave-one-out", "min_std": 0.1}]}"#;
    let error = Pipeline::from_config(&serde_json::from_str(text).unwrap()).err().unwrap().to_string();
    assert!(error.contains("min_std is 0.1"), "{error}");
    let levels = [vec![0.5], vec![0.25, 1.0], vec![0.0]];
    let turns = |(sample, row): (usize, &Vec<f64>)| -> Vec<Turn> {
        row.iter().map(|&level| Turn { progress: Some(level), ..turn("s", sample as f64) }).collect()
    };
    let batch = Batch { groups: vec![common::group(levels.iter().enumerate().map(turns).collect())] };
    let has = HasConfig { alpha: 0.0, baseline: TurnBaseline::LeaveOneOut, ..HasConfig::default() };
    let found = run(EstimatorConfig::default(), vec![RefinementConfig::Has(has)], &batch);
    let expected = [0.5 - 0.125, 0.25 - 0.25, 1.0, -0.375];
    assert!(found.values().zip(expected).all(|(got, expected)| (got - expected).abs() < 1e-12), "{found:?}");
}

#[test]
fn measured_values_credit_the_turn_that_changed_them() {
    let measured = |values: &[f64], reward: f64| -> Vec<Turn> {
        let last = values.len() - 1;
        let of = |(index, &value): (usize, &f64)| Turn {
            state_value: Some(value),
            ..turn("s", if index == last { reward } else { 0.0 })
        };
        values.iter().enumerate().map(of).collect()
    };
    // The first trajectory loses at its second turn; the second wins by luck at its last.
    let mut batch = Batch {
        groups: vec![common::group(vec![measured(&[0.5, 0.5, 0.0], 0.0), measured(&[0.5, 0.25], 1.0)])],
    };
    let estimator =
        |whiten| EstimatorConfig::MonteCarlo(MonteCarloConfig { whiten, ..MonteCarloConfig::default() });
    let plain = run(estimator(false), Vec::new(), &batch);
    assert_eq!((&plain[(0, 0)], &plain[(0, 1)]), (&[0.0, -0.5, 0.0][..], &[-0.25, 0.75][..]));
    let white = run(estimator(true), Vec::new(), &batch);
    let all: Vec<f64> = white.values().copied().collect();
    assert!(all.iter().sum::<f64>().abs() < 1e-12);
    let ratio = (all[1] - all[0]) / -0.5;
    assert!(ratio > 1.0 && (all[4] - all[3] - ratio * 1.0).abs() < 1e-9, "{all:?}");
    let shared = |gamma| {
        let config =
            MonteCarloConfig { gamma, per_turn: false, whiten: false, ..MonteCarloConfig::default() };
        run(EstimatorConfig::MonteCarlo(config), Vec::new(), &batch)
    };
    let found = shared(1.0);
    assert_eq!((&found[(0, 0)], &found[(0, 1)]), (&[-0.5; 3][..], &[0.5; 2][..]));
    let found = shared(0.5);
    assert_eq!((&found[(0, 0)], &found[(0, 1)]), (&[-0.5; 3][..], &[0.0; 2][..]));
    batch.groups[0].trajectories[0].turns[0].valid = false;
    let paid = run(estimator(false), Vec::new(), &batch);
    let expected = [-0.1, -0.5, 0.0];
    assert!(
        paid[(0, 0)].iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-12),
        "{paid:?}"
    );
    batch.groups[0].trajectories[1].turns[1].state_value = None;
    let config = CreditConfig { estimator: estimator(true), ..CreditConfig::default() };
    let error = Pipeline::from_config(&config).unwrap().run(&batch).unwrap_err().to_string();
    assert!(error.contains("monte-carlo needs `state_value`") && error.contains("trajectory 1"), "{error}");
}
