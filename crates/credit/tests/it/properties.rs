//! Properties of any batch.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use proptest::prelude::*;
use turnwise_core::{Batch, Group, PerToken, PerTurn, Turn};
use turnwise_credit::aem::{Aem, AemConfig, AemMode, AemScope};
use turnwise_credit::anchor::{AnchorConfig, Matching};
use turnwise_credit::empg::EmpgConfig;
use turnwise_credit::gigpo::GigpoConfig;
use turnwise_credit::grpo::GrpoConfig;
use turnwise_credit::has::HasConfig;
use turnwise_credit::hgpo::HgpoConfig;
use turnwise_credit::outlier::{OutlierConfig, locate};
use turnwise_credit::rloo::RlooConfig;
use turnwise_credit::rtmc::RtmcConfig;
use turnwise_credit::salt::SaltConfig;
use turnwise_credit::statistics::{Normalize, Singleton};
use turnwise_credit::turn_credit::TurnCreditConfig;
use turnwise_credit::{CreditConfig, CreditInputs, EstimatorConfig, ModelInputs, Pipeline, RefinementConfig};

type Table = PerTurn<f64>;

fn turns() -> impl Strategy<Value = Turn> {
    (0..5_u8, 0..3_u8, any::<bool>(), -4..5_i8, 0..=4_u8, prop::collection::vec(0.0..4.0_f32, 1..4)).prop_map(
        |(state, action, valid, reward, progress, entropies)| Turn {
            observation: format!("you see object {state} and object {state}"),
            action: format!("take {action}"),
            valid,
            // Quarters, so that sums of rewards are exact in any order.
            reward: f64::from(reward) / 4.0,
            progress: Some(f64::from(progress) / 4.0),
            response_ids: vec![0; entropies.len()],
            entropies,
            ..Turn::default()
        },
    )
}

fn batches() -> impl Strategy<Value = Batch> {
    let trajectory = prop::collection::vec(turns(), 0..7);
    let group = prop::collection::vec(trajectory, 1..6);
    prop::collection::vec(group, 1..4).prop_map(|groups| Batch {
        groups: groups
            .into_iter()
            .enumerate()
            .map(|(number, members)| Group {
                trajectories: members
                    .into_iter()
                    .enumerate()
                    .map(|(sample, turns)| common::trajectory(number, sample, turns))
                    .collect(),
            })
            .collect(),
    })
}

fn estimators() -> Vec<EstimatorConfig> {
    let free = |normalize, single_sample_advantage| GrpoConfig {
        normalize,
        single_sample_advantage,
        ..GrpoConfig::default()
    };
    vec![
        EstimatorConfig::Grpo(free(Normalize::MeanStd, Singleton::Zero)),
        EstimatorConfig::Grpo(free(Normalize::Mean, Singleton::Raw)),
        EstimatorConfig::Grpo(GrpoConfig::default().verl_agent()),
        EstimatorConfig::Rloo(RlooConfig::default()),
        EstimatorConfig::Rloo(RlooConfig::default().verl_agent()),
        EstimatorConfig::Gigpo(GigpoConfig::default()),
        EstimatorConfig::Gigpo(GigpoConfig {
            anchor: AnchorConfig { matching: Matching::Similarity, ..AnchorConfig::default() },
            ..GigpoConfig::default()
        }),
        EstimatorConfig::Hgpo(HgpoConfig::default()),
        EstimatorConfig::Rtmc(RtmcConfig::default()),
    ]
}

fn refinements() -> Vec<RefinementConfig> {
    let aem = |mode, scope| RefinementConfig::Aem(AemConfig { mode, scope, ..AemConfig::default() });
    vec![
        RefinementConfig::Salt(SaltConfig::default()),
        RefinementConfig::Salt(SaltConfig { history: 1, ..SaltConfig::default() }),
        aem(AemMode::Normal, AemScope::Group),
        aem(AemMode::Reverse, AemScope::Batch),
        aem(AemMode::Shuffle, AemScope::Trajectory),
        RefinementConfig::Empg(EmpgConfig::default()),
        RefinementConfig::Has(HasConfig::default()),
        RefinementConfig::TurnCredit(TurnCreditConfig::default()),
    ]
}

pub(crate) fn run(estimator: &EstimatorConfig, refinements: &[RefinementConfig], batch: &Batch) -> Table {
    let config = CreditConfig {
        estimator: estimator.clone(),
        refinements: refinements.to_vec(),
        ..CreditConfig::default()
    };
    Pipeline::from_config(&config).unwrap().run(batch).unwrap()
}

fn close(a: &Table, b: &Table, tolerance: f64) -> bool {
    let lengths = |table: &Table| table.rows().map(<[f64]>::len).collect::<Vec<_>>();
    lengths(a) == lengths(b)
        && a.values().zip(b.values()).all(|(x, y)| (x - y).abs() <= tolerance * (1.0 + y.abs()))
}

fn reversed(table: &Table) -> Table {
    table.groups().map(|members| members.iter().rev().cloned().collect()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_finite_batch_gives_finite_advantages_of_its_own_shape(batch in batches()) {
        for estimator in estimators() {
            let table = run(&estimator, &refinements(), &batch);
            prop_assert_eq!(table.check_shape(&batch), Ok(()));
            prop_assert!(table.values().all(|value| value.is_finite()));
        }
    }

    #[test]
    fn the_order_of_trajectories_does_not_matter(batch in batches()) {
        let mut other = batch.clone();
        for group in &mut other.groups {
            group.trajectories.reverse();
        }
        for estimator in estimators() {
            // Similarity groups and shuffled coefficients depend on the order.
            let ordered = matches!(&estimator, EstimatorConfig::Gigpo(config)
                if config.anchor.matching == Matching::Similarity);
            let chain: Vec<RefinementConfig> = refinements()
                .into_iter()
                .filter(|kind| !matches!(kind, RefinementConfig::Aem(aem) if aem.mode == AemMode::Shuffle))
                .collect();
            if !ordered {
                let (one, two) = (run(&estimator, &chain, &batch), run(&estimator, &chain, &other));
                prop_assert!(close(&reversed(&one), &two, 1e-9), "{:?}", estimator);
            }
        }
    }

    #[test]
    fn a_constant_added_to_every_return_changes_nothing(batch in batches(), shift in -8..8_i8) {
        prop_assume!(batch.trajectories().all(|trajectory| !trajectory.turns.is_empty()));
        let mut other = batch.clone();
        for trajectory in other.groups.iter_mut().flat_map(|group| &mut group.trajectories) {
            trajectory.turns.last_mut().unwrap().reward += f64::from(shift);
        }
        for estimator in &estimators()[..4] {
            if matches!(estimator, EstimatorConfig::Grpo(config) if config.single_sample_advantage == Singleton::Raw) {
                continue;
            }
            let (one, two) = (run(estimator, &[], &batch), run(estimator, &[], &other));
            prop_assert!(close(&one, &two, 1e-6), "{:?}", estimator);
        }
    }

    #[test]
    fn rewards_scale_advantages(batch in batches(), scale in 1..6_u8) {
        let scale = f64::from(scale);
        let mut other = batch.clone();
        for turn in other.groups.iter_mut().flat_map(|g| &mut g.trajectories).flat_map(|t| &mut t.turns) {
            turn.reward *= scale;
        }
        // Without a penalty, RLOO is linear in the rewards; division by the deviation cancels the
        // scale.
        let rloo = EstimatorConfig::Rloo(RlooConfig { invalid_penalty: 0.0, ..RlooConfig::default() });
        let scaled = run(&rloo, &[], &batch).map(|value| value * scale);
        prop_assert!(close(&scaled, &run(&rloo, &[], &other), 1e-12));
        let config = GrpoConfig { invalid_penalty: 0.0, epsilon: 0.0, ..GrpoConfig::default() };
        let grpo = EstimatorConfig::Grpo(config);
        prop_assert!(close(&run(&grpo, &[], &batch), &run(&grpo, &[], &other), 1e-9));
    }

    #[test]
    fn the_advantages_of_a_group_sum_to_zero(batch in batches()) {
        for group in &batch.groups {
            let group = Batch { groups: vec![group.clone()] };
            for estimator in [
                EstimatorConfig::Grpo(GrpoConfig { invalid_penalty: 0.0, ..GrpoConfig::default() }),
                EstimatorConfig::Rloo(RlooConfig { invalid_penalty: 0.0, ..RlooConfig::default() }),
            ] {
                // Trajectories without turns have an advantage but no turn to show it.
                if group.trajectories().any(|trajectory| trajectory.turns.is_empty()) {
                    continue;
                }
                let sum: f64 = run(&estimator, &[], &group)[0].iter().map(|row| row[0]).sum();
                prop_assert!(sum.abs() < 1e-9, "{sum}");
            }
            let turns = GrpoConfig { single_sample_advantage: Singleton::Zero, ..GrpoConfig::default().verl_agent() };
            let sum: f64 = run(&EstimatorConfig::Grpo(turns), &[], &group).values().sum();
            prop_assert!(sum.abs() < 1e-9, "{sum}");
        }
    }

    #[test]
    fn switches_that_turn_a_refinement_off_leave_every_bit(batch in batches()) {
        let off = [
            RefinementConfig::Has(HasConfig { alpha: 1.0, ..HasConfig::default() }),
            RefinementConfig::Aem(AemConfig { lambda: 0.0, ..AemConfig::default() }),
            RefinementConfig::Aem(AemConfig { min_spread: 1000.0, ..AemConfig::default() }),
        ];
        for estimator in estimators() {
            prop_assert_eq!(run(&estimator, &off, &batch), run(&estimator, &[], &batch));
        }
    }

    #[test]
    fn salt_without_equal_edges_changes_nothing(batch in batches()) {
        let mut batch = batch;
        for (g, group) in batch.groups.iter_mut().enumerate() {
            for (i, trajectory) in group.trajectories.iter_mut().enumerate() {
                for (t, turn) in trajectory.turns.iter_mut().enumerate() {
                    turn.action = format!("action {g} {i} {t}");
                }
            }
        }
        for estimator in estimators() {
            let salt = [RefinementConfig::Salt(SaltConfig { history: 1, ..SaltConfig::default() })];
            prop_assert_eq!(run(&estimator, &salt, &batch), run(&estimator, &[], &batch));
        }
    }

    #[test]
    fn salt_keeps_the_sum_and_never_adds_variance(batch in batches()) {
        let config = CreditConfig {
            estimator: EstimatorConfig::default(),
            refinements: vec![RefinementConfig::Salt(SaltConfig { history: 1, ..SaltConfig::default() })],
            ..CreditConfig::default()
        };
        let report = Pipeline::from_config(&config).unwrap().report(&CreditInputs::new(&batch), true).unwrap();
        let sum = |table: &Table| table.values().sum::<f64>();
        let plain = run(&EstimatorConfig::default(), &[], &batch);
        prop_assert!((sum(&report.advantages) - sum(&plain)).abs() < 1e-9);
        let (before, after) =
            (report.diagnostics["salt/variance_before"], report.diagnostics["salt/variance_after"]);
        prop_assert!(after <= before + 1e-12);
        for explanations in report.explanations.values() {
            prop_assert_eq!(explanations.len(), 2);
        }
    }

    #[test]
    fn shuffled_coefficients_are_a_permutation_that_the_seed_decides(batch in batches()) {
        let aem = |mode| Aem::new(AemConfig { mode, ..AemConfig::default() }).unwrap();
        let coefficients = |mode, seed| {
            aem(mode).coefficients(&CreditInputs::new(&batch).at(seed, 0)).unwrap()
        };
        let sorted = |table: &Table, group: usize| {
            let mut values: Vec<f64> = table[group].iter().flatten().copied().collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let (normal, shuffled) = (coefficients(AemMode::Normal, 1), coefficients(AemMode::Shuffle, 1));
        for group in 0..batch.groups.len() {
            prop_assert_eq!(sorted(&normal, group), sorted(&shuffled, group));
        }
        prop_assert_eq!(&shuffled, &coefficients(AemMode::Shuffle, 1));
    }

    #[test]
    fn a_response_is_masked_by_the_sign_of_its_effect_on_entropy(batch in batches()) {
        let aem = |mode| AemConfig { mode, ..AemConfig::default() };
        let alpha = Aem::new(AemConfig::default()).unwrap().coefficients(&CreditInputs::new(&batch)).unwrap();
        for estimator in estimators() {
            let masked = |mode| run(&estimator, &[RefinementConfig::Aem(aem(mode))], &batch);
            let (plain, positive) = (run(&estimator, &[], &batch), masked(AemMode::MaskPositive));
            let negative = masked(AemMode::MaskNegative);
            let rows = plain.values().zip(alpha.values()).zip(positive.values().zip(negative.values()));
            for ((&plain, &alpha), (&positive, &negative)) in rows {
                let effect = plain * (alpha - 1.0);
                prop_assert_eq!(positive, if effect > 0.0 { 0.0 } else { plain });
                prop_assert_eq!(negative, if effect < 0.0 { 0.0 } else { plain });
            }
        }
    }

    #[test]
    fn a_mask_by_entropy_alone_takes_both_signs(batch in batches()) {
        let aem = |mode| AemConfig { mode, ..AemConfig::default() };
        let alpha = Aem::new(AemConfig::default()).unwrap().coefficients(&CreditInputs::new(&batch)).unwrap();
        for estimator in estimators() {
            let masked = |mode| run(&estimator, &[RefinementConfig::Aem(aem(mode))], &batch);
            let (plain, uncertain) = (run(&estimator, &[], &batch), masked(AemMode::MaskUncertain));
            let confident = masked(AemMode::MaskConfident);
            let rows = plain.values().zip(alpha.values()).zip(uncertain.values().zip(confident.values()));
            for ((&plain, &alpha), (&uncertain, &confident)) in rows {
                prop_assert_eq!(uncertain, if alpha < 1.0 { 0.0 } else { plain });
                prop_assert_eq!(confident, if alpha > 1.0 { 0.0 } else { plain });
            }
        }
    }

    #[test]
    fn a_shuffled_mask_is_the_mask_of_the_shuffled_coefficients(batch in batches()) {
        let aem = |mode| RefinementConfig::Aem(AemConfig { mode, ..AemConfig::default() });
        for estimator in estimators() {
            let advantages = |mode| run(&estimator, &[aem(mode)], &batch);
            let (plain, scaled) = (run(&estimator, &[], &batch), advantages(AemMode::Shuffle));
            let positive = advantages(AemMode::MaskPositiveShuffle);
            let negative = advantages(AemMode::MaskNegativeShuffle);
            let rows = plain.values().zip(scaled.values()).zip(positive.values().zip(negative.values()));
            for ((&plain, &scaled), (&positive, &negative)) in rows {
                // The sign of `A (alpha - 1)` is the sign of `alpha A - A`.
                prop_assert_eq!(positive, if scaled > plain { 0.0 } else { plain });
                prop_assert_eq!(negative, if scaled < plain { 0.0 } else { plain });
            }
        }
    }

    #[test]
    fn a_wider_interval_has_no_more_outliers(batch in batches(), lambda in 0.0..4.0_f64) {
        let count = |lambda| {
            let found = locate(&batch, &OutlierConfig { lambda, ..OutlierConfig::default() }).unwrap();
            found.low + found.high
        };
        prop_assert!(count(lambda + 0.5) <= count(lambda));
    }
}

#[test]
fn another_seed_shuffles_otherwise_and_a_mask_by_it() {
    // With eight entropies, the chance that a permutation is the identity, or equal for two seeds,
    // is one in 40,320.
    let turns = (0..8_u8).map(|index| Turn {
        reward: f64::from(index % 3),
        entropies: vec![f32::from(index) / 4.0],
        response_ids: vec![0],
        valid: true,
        ..Turn::default()
    });
    let members = turns.enumerate().map(|(sample, turn)| common::trajectory(0, sample, vec![turn]));
    let batch = Batch { groups: vec![Group { trajectories: members.collect() }] };
    let of = |mode: AemMode, seed: u64| {
        let config = CreditConfig {
            estimator: EstimatorConfig::default(),
            refinements: vec![RefinementConfig::Aem(AemConfig { mode, ..AemConfig::default() })],
            ..CreditConfig::default()
        };
        let inputs = CreditInputs::new(&batch).at(seed, 0);
        Pipeline::from_config(&config).unwrap().report(&inputs, false).unwrap().advantages
    };
    for (plain, shuffled) in [
        (AemMode::Normal, AemMode::Shuffle),
        (AemMode::MaskPositive, AemMode::MaskPositiveShuffle),
        (AemMode::MaskNegative, AemMode::MaskNegativeShuffle),
    ] {
        assert_eq!(of(plain, 1), of(plain, 2));
        assert_ne!(of(plain, 1), of(shuffled, 1));
        assert_ne!(of(shuffled, 1), of(shuffled, 2));
    }
}

#[test]
fn settings_outside_of_their_ranges_are_refused() {
    for (config, key) in [
        (r#"{"estimator": {"kind": "gigpo", "omega": 5000.0}}"#, "omega"),
        (r#"{"estimator": {"kind": "grpo", "epsilon": 1e9}}"#, "epsilon"),
        (r#"{"estimator": {"kind": "hgpo", "levels": 20000000}}"#, "levels"),
        (r#"{"refinements": [{"kind": "empg", "zeta": 1e9}]}"#, "zeta"),
        (r#"{"outliers": {"lambda": 1e9}}"#, "lambda"),
        (r#"{"refinements": [{"kind": "aem", "mode": "mask-uncertain", "lambda": -1}]}"#, "lambda"),
        (r#"{"outliers": {"ddof": 2}}"#, "outliers"),
    ] {
        let config: CreditConfig = serde_json::from_str(config).unwrap();
        let Err(error) = Pipeline::from_config(&config) else { panic!("{config:?} was taken") };
        assert!(error.to_string().contains(key), "{error}");
    }
}

#[test]
fn a_method_names_the_field_it_needs() {
    let batch = common::peer_batch();
    for (refinement, field) in [
        (RefinementConfig::Aem(AemConfig::default()), "entropies"),
        (RefinementConfig::Empg(EmpgConfig::default()), "entropies"),
        (RefinementConfig::Has(HasConfig::default()), "progress"),
        (RefinementConfig::TurnCredit(TurnCreditConfig::default()), "progress"),
    ] {
        let config = CreditConfig { refinements: vec![refinement], ..CreditConfig::default() };
        let error = Pipeline::from_config(&config).unwrap().run(&batch).unwrap_err().to_string();
        assert!(error.contains(&format!("needs `{field}`")), "{error}");
        assert!(error.contains("group 0, trajectory 0, turn 0"), "{error}");
    }
    let ppo: CreditConfig = serde_json::from_str(r#"{"estimator":{"kind":"ppo"}}"#).unwrap();
    let error = Pipeline::from_config(&ppo).unwrap().run(&batch).unwrap_err().to_string();
    assert!(error.contains("ppo needs `values`"), "{error}");
    let mixed: CreditConfig =
        serde_json::from_str(r#"{"estimator":{"kind":"ppo"},"refinements":[{"kind":"salt"}]}"#).unwrap();
    assert!(
        Pipeline::from_config(&mixed).err().unwrap().to_string().contains("salt: it works on advantages")
    );
}

#[test]
fn aem_refines_and_masks_the_advantages_of_tokens() {
    let mut batch = common::peer_batch();
    for turn in batch.groups[0].trajectories.iter_mut().flat_map(|t| &mut t.turns) {
        (turn.response_ids, turn.entropies) = (vec![1, 2], vec![turn.reward as f32, 0.5]);
    }
    let aem: CreditConfig =
        serde_json::from_str(r#"{"estimator":{"kind":"ppo"},"refinements":[{"kind":"aem"}]}"#).unwrap();
    let values = Some(PerToken::from(vec![vec![vec![0.5, 20.0, 0.5, 0.5, 0.5, 0.5], vec![0.25; 4]]]));
    let model_inputs = ModelInputs { values, ..ModelInputs::default() };
    let inputs = CreditInputs::new(&batch).with_model_inputs(&model_inputs);
    let report = Pipeline::from_config(&aem).unwrap().report(&inputs, false).unwrap();
    let tokens = report.tokens.unwrap().advantages;
    let mean = f64::midpoint(tokens[0][0][4], tokens[0][0][5]);
    assert!((mean - report.advantages[(0, 0, 2)]).abs() < 1e-12);
    // Masks act per token, because PPO's advantages of one response can have both signs.
    let tokens = |refinements: &str| {
        let config = format!(r#"{{"estimator":{{"kind":"ppo"}},"refinements":[{refinements}]}}"#);
        let config: CreditConfig = serde_json::from_str(&config).unwrap();
        let report = Pipeline::from_config(&config).unwrap().report(&inputs, true).unwrap();
        let tokens = report.tokens.unwrap().advantages;
        for (trajectory, turn) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)] {
            let own = &tokens[0][trajectory][2 * turn..2 * turn + 2];
            let mean = own.iter().sum::<f64>() / 2.0;
            assert_eq!(report.advantages[(0, trajectory, turn)], mean);
            assert_eq!(report.explanations[(0, trajectory, turn)].last().unwrap().advantage, mean);
        }
        tokens
    };
    // The factor is recorded if all tokens of the turn share it; the fraction of masked tokens is
    // too.
    let masked: CreditConfig = serde_json::from_str(
        r#"{"estimator":{"kind":"ppo"},"refinements":[{"kind":"aem","mode":"mask-positive"}]}"#,
    )
    .unwrap();
    let before = tokens("");
    let report = Pipeline::from_config(&masked).unwrap().report(&inputs, true).unwrap();
    let after = report.tokens.as_ref().unwrap().advantages.clone();
    let changed = before.values().zip(after.values()).filter(|(before, after)| before != after).count();
    assert_eq!(report.diagnostics["aem/masked_frac"], changed as f64 / 10.0);
    for (index, stages) in report.explanations.iter() {
        let (before, after) = (stages[0].advantage, stages[1].advantage);
        match stages[1].facts.get("factor") {
            Some(factor) => assert_eq!(after, factor * before, "{index:?}"),
            None => assert!(after != before && after != 0.0, "{index:?}: {before} to {after}"),
        }
    }
    let keeps_some = report.explanations.values().any(|stages| stages[1].facts.get("factor").is_none());
    assert!(keeps_some, "no mask keeps some tokens of a response and not others");
    let alpha = Aem::new(AemConfig::default()).unwrap().coefficients(&CreditInputs::new(&batch)).unwrap();
    let (plain, masked) = (tokens(""), tokens(r#"{"kind":"aem","mode":"mask-positive"}"#));
    let alphas = alpha.values().flat_map(|&alpha| [alpha; 2]);
    let expected: Vec<f64> = plain
        .values()
        .zip(alphas)
        .map(|(&plain, alpha)| if plain * (alpha - 1.0) > 0.0 { 0.0 } else { plain })
        .collect();
    assert_eq!(masked.values().copied().collect::<Vec<_>>(), expected);
    assert!(expected.contains(&0.0) && expected.iter().any(|&value| value != 0.0));
}

#[test]
fn the_pipeline_locates_outliers_where_it_is_asked_to() {
    let mut batch = common::peer_batch();
    for (index, turn) in batch.groups[0].trajectories.iter_mut().flat_map(|t| &mut t.turns).enumerate() {
        turn.entropies = vec![[0.5, 0.6, 9.0, 0.5, 0.55][index]];
    }
    let config = CreditConfig {
        estimator: EstimatorConfig::Gigpo(GigpoConfig::default()),
        outliers: Some(OutlierConfig::default()),
        ..CreditConfig::default()
    };
    let report = Pipeline::from_config(&config).unwrap().report(&CreditInputs::new(&batch), true).unwrap();
    let outliers = report.outliers.unwrap();
    assert_eq!(outliers.mask, vec![vec![vec![false, false, true], vec![false, false]]]);
    assert_eq!(report.diagnostics["outliers/share"], 0.2);
    let stage = &report.explanations[0][0][2][1];
    assert_eq!((stage.stage.as_ref(), stage.facts.get("outlier")), ("outliers", Some(1.0)));
    let plain = CreditConfig { outliers: None, ..config };
    let report = Pipeline::from_config(&plain).unwrap().report(&CreditInputs::new(&batch), true).unwrap();
    assert!(report.outliers.is_none());
    assert_eq!(report.explanations[0][0][2].len(), 1);
}

#[test]
fn huge_rewards_give_an_error_or_a_number() {
    let huge = [1.7e308, -1.7e308, -1.7e308, 1e-300, 1e300];
    let turns = huge.iter().map(|&reward| vec![common::turn("s", reward)]).collect();
    let batch = Batch { groups: vec![common::group(turns)] };
    for estimator in estimators() {
        let config = CreditConfig { estimator, ..CreditConfig::default() };
        match Pipeline::from_config(&config).unwrap().run(&batch) {
            Ok(advantages) => assert!(advantages.values().all(|value| value.is_finite())),
            Err(error) => assert!(error.to_string().contains("advantage"), "{error}"),
        }
    }
}
