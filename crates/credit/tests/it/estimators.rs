//! Estimators: verl-agent's numbers and hand-computed numbers.
#![allow(
    clippy::approx_constant,
    clippy::needless_update,
    reason = "rounded golden numbers; the config has one field yet"
)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{group, peer_batch, turn};
use turnwise_core::{Batch, PerToken, Turn};
use turnwise_credit::gae::{Ppo, PpoConfig};
use turnwise_credit::grpo::GrpoConfig;
use turnwise_credit::has::HasConfig;
use turnwise_credit::rloo::RlooConfig;
use turnwise_credit::scores::{InvalidActionPenalty, PenaltyScope, Population};
use turnwise_credit::statistics::{Normalize, Singleton};
use turnwise_credit::{CreditConfig, CreditInputs, EstimatorConfig, ModelInputs, Pipeline, RefinementConfig};

fn run(estimator: EstimatorConfig, batch: &Batch) -> Vec<f64> {
    let config = CreditConfig { estimator, ..CreditConfig::default() };
    let advantages = Pipeline::from_config(&config).unwrap().run(batch).unwrap();
    advantages.values().copied().collect()
}

fn close(got: &[f64], expected: &[f64]) -> bool {
    got.len() == expected.len() && got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5)
}

#[test]
fn the_peers_numbers() {
    let batch = peer_batch();
    let cases: Vec<(EstimatorConfig, [f64; 5])> = vec![
        (
            EstimatorConfig::Grpo(GrpoConfig::default().verl_agent()),
            [0.730282, 0.730282, 0.730282, -1.086339, -1.104505],
        ),
        (EstimatorConfig::Grpo(GrpoConfig::default()), [0.707107, 0.707107, 0.707107, -0.707107, -0.721249]),
        (EstimatorConfig::Rloo(RlooConfig::default().verl_agent()), [5.025, 5.025, 5.025, -7.475, -7.6]),
    ];
    for (estimator, expected) in cases {
        let got = run(estimator.clone(), &batch);
        assert!(close(&got, &expected), "{estimator:?}: {got:?}");
        let mut other = batch.clone();
        other.groups[0].trajectories[1].turns[0].valid = false;
        assert!(!close(&run(estimator, &other), &expected));
    }
}

#[test]
fn penalties_by_scope() {
    let batch = peer_batch();
    let failed = &batch.groups[0].trajectories[1];
    let own = InvalidActionPenalty { cost: 0.1, scope: PenaltyScope::Turn };
    assert_eq!(own.step_returns(&batch.groups[0].trajectories[0], 0.95), [9.025, 9.5, 10.0]);
    assert_eq!(own.step_returns(failed, 0.95), [0.0, -0.1]);
    assert_eq!(own.outcome_return(failed), 0.0);
    let discounted = InvalidActionPenalty { cost: 0.1, scope: PenaltyScope::Return };
    assert_eq!(discounted.step_returns(failed, 0.95), [0.95 * -0.1, -0.1]);
    assert_eq!(discounted.outcome_return(failed), -0.1);
    // With scope `return` the penalty lowers the whole trajectory, both turns equally.
    let config = GrpoConfig { invalid_penalty_target: PenaltyScope::Return, ..GrpoConfig::default() };
    let got = run(EstimatorConfig::Grpo(config), &batch);
    assert_eq!(got[3], got[4]);
}

#[test]
fn rloo_by_hand() {
    let batch =
        Batch { groups: vec![group(vec![vec![turn("s", 1.0)], vec![turn("s", 2.0)], vec![turn("s", 6.0)]])] };
    let got = run(EstimatorConfig::Rloo(RlooConfig::default()), &batch);
    assert!(close(&got, &[-3.0, -1.5, 4.5]), "{got:?}");
}

#[test]
fn no_variance_is_exactly_nothing() {
    let batch = Batch { groups: vec![group(vec![vec![turn("s", 0.1); 3]; 7])] };
    for normalize in [Normalize::MeanStd, Normalize::Mean] {
        for population in [Population::Trajectory, Population::Turn] {
            let config = GrpoConfig { normalize, population, ..GrpoConfig::default() };
            assert!(run(EstimatorConfig::Grpo(config), &batch).iter().all(|&value| value == 0.0));
        }
    }
    assert!(run(EstimatorConfig::Rloo(RlooConfig::default()), &batch).iter().all(|&value| value == 0.0));
    // A penalized turn in such a group: 0 without a scale to divide by; the penalty without
    // division.
    let mut penalised = batch.clone();
    penalised.groups[0].trajectories[0].turns[0].valid = false;
    let grpo = |normalize| EstimatorConfig::Grpo(GrpoConfig { normalize, ..GrpoConfig::default() });
    assert!(run(grpo(Normalize::MeanStd), &penalised).iter().all(|&value| value == 0.0));
    assert!((run(grpo(Normalize::Mean), &penalised)[0] + 0.1).abs() < 1e-12);
    let rloo = run(EstimatorConfig::Rloo(RlooConfig::default()), &penalised);
    assert!((rloo[0] + 0.1).abs() < 1e-12 && rloo[1] == 0.0);
}

#[test]
fn singletons() {
    let batch = Batch { groups: vec![group(vec![vec![turn("s", 3.0), turn("t", 0.0)]])] };
    assert_eq!(run(EstimatorConfig::Grpo(GrpoConfig::default()), &batch), [0.0, 0.0]);
    let raw = GrpoConfig { single_sample_advantage: Singleton::Raw, epsilon: 0.0, ..GrpoConfig::default() };
    assert_eq!(run(EstimatorConfig::Grpo(raw), &batch), [3.0, 3.0]);
    assert_eq!(run(EstimatorConfig::Rloo(RlooConfig::default()), &batch), [0.0, 0.0]);
    let raw = RlooConfig { single_sample_advantage: Singleton::Raw, ..RlooConfig::default() };
    assert_eq!(run(EstimatorConfig::Rloo(raw), &batch), [3.0, 3.0]);
}

#[test]
fn the_explanation_is_recorded_only_when_asked() {
    let batch = peer_batch();
    let pipeline = Pipeline::from_config(&CreditConfig::default()).unwrap();
    assert!(pipeline.report(&CreditInputs::new(&batch), false).unwrap().explanations.is_empty());
    let report = pipeline.report(&CreditInputs::new(&batch), true).unwrap();
    let stage = &report.explanations[0][1][1][0];
    assert_eq!(stage.stage, "grpo");
    assert_eq!(stage.advantage, report.advantages[(0, 1, 1)]);
    let text = serde_json::to_string(stage).unwrap();
    assert!(text.contains(r#""facts":{"score":-0.1,"mean":5.0,"std":7.07"#), "{text}");
}

#[test]
fn bad_input_is_named() {
    let mut batch = peer_batch();
    batch.groups[0].trajectories[1].turns[1].reward = f64::NAN;
    let pipeline = Pipeline::from_config(&CreditConfig::default()).unwrap();
    let text = pipeline.run(&batch).unwrap_err().to_string();
    assert_eq!(text, "grpo: `reward` is NaN in group 0, trajectory 1, turn 1");
    let read = |text: &str| serde_json::from_str::<CreditConfig>(text);
    assert!(read(r#"{"estimator":{"kind":"grpo","dof":1}}"#).unwrap_err().to_string().contains("`dof`"));
    let config = read(r#"{"estimator":{"kind":"grpo","ddof":2}}"#).unwrap();
    assert!(Pipeline::from_config(&config).err().unwrap().to_string().contains("ddof = 2"));
    let config = read(r#"{"estimator":{"kind":"rloo","population":"turn"}}"#).unwrap();
    assert_eq!(read(&serde_json::to_string(&config).unwrap()).unwrap(), config);
}

#[test]
fn a_tokens_own_reward_stays_at_its_token() {
    // Two turns of two tokens; the KL costs 0.5 at the second turn's first token.
    let tokens = |text: &str, reward| Turn { response_ids: vec![1, 2], ..turn(text, reward) };
    let mut batch = Batch { groups: vec![group(vec![vec![tokens("a", 0.0), tokens("b", 1.0)]])] };
    let config = PpoConfig { lambda: 0.0, whiten: false, ..PpoConfig::default() };
    let values = PerToken::from(vec![vec![vec![0.0; 4]]]);
    let model_inputs = ModelInputs { values: Some(values), ..ModelInputs::default() };
    let advantages = |batch: &Batch| {
        let inputs = CreditInputs::new(batch).with_model_inputs(&model_inputs);
        Ppo::new(config.clone())
            .unwrap()
            .tokens(&inputs)
            .unwrap()
            .advantages
            .values()
            .copied()
            .collect::<Vec<_>>()
    };
    assert_eq!(advantages(&batch), [0.0, 0.0, 0.0, 1.0]);
    batch.groups[0].trajectories[0].turns[1].shape_token_rewards(&[-0.5, 0.0]);
    assert_eq!(advantages(&batch), [0.0, 0.0, -0.5, 1.0]);
    assert_eq!(batch.groups[0].trajectories[0].outcome_return(), 0.5);
    batch.groups[0].trajectories[0].scale_rewards(2.0);
    assert_eq!(advantages(&batch), [0.0, 0.0, -1.0, 2.0]);
}

#[test]
fn the_reward_of_a_turn_without_tokens_is_not_lost() {
    let tokens = |count: usize, reward| Turn { response_ids: vec![1; count], ..turn("a", reward) };
    let advantages = |turns: Vec<Turn>| {
        let count = turns.iter().map(|turn| turn.response_ids.len()).sum();
        let batch = Batch { groups: vec![group(vec![turns])] };
        let values = Some(PerToken::from(vec![vec![vec![0.5; count]]]));
        let model_inputs = ModelInputs { values, ..ModelInputs::default() };
        let ppo = Ppo::new(PpoConfig { whiten: false, ..PpoConfig::default() }).unwrap();
        let found = ppo.tokens(&CreditInputs::new(&batch).with_model_inputs(&model_inputs)).unwrap();
        found.advantages.values().copied().collect::<Vec<_>>()
    };
    // Reward without tokens goes to the last token before, or else to the first turn with tokens.
    assert_eq!(advantages(vec![tokens(0, 5.0), tokens(2, 0.0)]), [4.5, 4.5]);
    assert_eq!(advantages(vec![tokens(0, 2.0), tokens(0, 3.0), tokens(1, 1.0), tokens(0, 4.0)]), [9.5]);
    assert_eq!(advantages(vec![tokens(0, 5.0)]), [0.0; 0]);
}

#[test]
fn a_critics_value_that_is_wrong_is_named_by_its_turn() {
    let tokens = |count: usize| Turn { response_ids: vec![1; count], ..turn("a", 0.0) };
    let batch = Batch { groups: vec![group(vec![vec![tokens(2), tokens(3)]])] };
    let error = |values: Vec<f64>| {
        let model_inputs =
            ModelInputs { values: Some(PerToken::from(vec![vec![values]])), ..ModelInputs::default() };
        let ppo = Ppo::new(PpoConfig::default()).unwrap();
        ppo.tokens(&CreditInputs::new(&batch).with_model_inputs(&model_inputs)).unwrap_err().to_string()
    };
    assert_eq!(
        error(vec![0.0, 0.0, f64::NAN, 0.0, 0.0]),
        "ppo: `values` is NaN in group 0, trajectory 0, turn 1"
    );
    assert!(error(vec![0.0; 3]).ends_with("turn 1"), "{}", error(vec![0.0; 3]));
    assert!(error(vec![0.0; 1]).ends_with("turn 0"), "{}", error(vec![0.0; 1]));
}

#[test]
fn a_config_as_a_user_writes_it() {
    let text = r#"
        estimator = { kind = "gigpo", gamma = 1, omega = 0.5, anchor = { matching = "similarity" } }
        refinements = [ { kind = "salt", history = 2 }, { kind = "aem", lambda = 1, scope = "batch" } ]
        outliers = { locate = "shannon" }
    "#;
    let config: CreditConfig = toml::from_str(text).unwrap();
    assert_eq!(config.refinements.len(), 2);
    let written = toml::to_string(&config).unwrap();
    assert!(written.contains("threshold = 0.9"), "defaults are spelled out: {written}");
    assert_eq!(toml::from_str::<CreditConfig>(&written).unwrap(), config);
    let wrong =
        toml::from_str::<CreditConfig>("refinements = [ { kind = \"aem\", lamda = 1 } ]").unwrap_err();
    assert!(wrong.to_string().contains("lamda") && wrong.to_string().contains("lambda"), "{wrong}");
}

#[test]
fn credits_of_a_small_spread_are_divided_by_its_floor() {
    // At turn 0 the credits are 0.1 and 0.3 (mean 0.2, deviation 0.1); at turn 1 they are equal.
    let mut batch = Batch {
        groups: vec![group(vec![vec![turn("s", 0.0), turn("t", 1.0)], vec![turn("s", 0.0), turn("t", 0.0)]])],
    };
    for (trajectory, credit) in batch.groups[0].trajectories.iter_mut().zip([0.1, 0.3]) {
        trajectory.turns[0].progress = Some(credit);
        trajectory.turns[1].progress = Some(0.7);
    }
    let turn_advantages = |min_std| {
        let has = HasConfig { alpha: 0.0, epsilon: 0.0, min_std, ..HasConfig::default() };
        let config =
            CreditConfig { refinements: vec![RefinementConfig::Has(has)], ..CreditConfig::default() };
        let advantages = Pipeline::from_config(&config).unwrap().run(&batch).unwrap();
        advantages.values().copied().collect::<Vec<f64>>()
    };
    assert!(close(&turn_advantages(0.0), &[-1.0, 0.0, 1.0, 0.0]), "no floor: {:?}", turn_advantages(0.0));
    assert!(
        close(&turn_advantages(0.05), &[-1.0, 0.0, 1.0, 0.0]),
        "a floor below the spread changes nothing"
    );
    assert!(close(&turn_advantages(0.4), &[-0.25, 0.0, 0.25, 0.0]), "{:?}", turn_advantages(0.4));
}
