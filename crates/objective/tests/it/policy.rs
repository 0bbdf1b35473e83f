//! Central differences, hand-computed numbers and invariances of the policy objective.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use turnwise_core::{Objective, Purpose, Seed, TokenStatistics, TurnSpan};
use turnwise_objective::{
    Advantages, Aggregation, Clip, KlConfig, KlEstimator, KlPlace, LeftOut, ObjectiveBatch, ObjectiveConfig,
    ObjectiveSequence, PolicyObjective, RatioKind, SupervisedObjective,
};

const RATIOS: [RatioKind; 3] = [RatioKind::Token, RatioKind::Turn, RatioKind::Sequence];
const AGGREGATIONS: [Aggregation; 4] = [
    Aggregation::TokenMean,
    Aggregation::SeqMeanTokenMean,
    Aggregation::SeqMeanTokenSum,
    Aggregation::TurnMean,
];

fn spans(lengths: &[usize]) -> Vec<TurnSpan> {
    let mut start = 2;
    lengths
        .iter()
        .enumerate()
        .map(|(turn, &length)| {
            let span = TurnSpan { turn, start, end: start + length };
            start += length + 2;
            span
        })
        .collect()
}

/// Log-probs leave the clip range on both sides for every ratio.
fn random(seed: u64, per_token: bool, masked: bool) -> (ObjectiveBatch, Vec<Vec<f64>>, Vec<Vec<f64>>) {
    let mut rng = Seed::derive(seed, Purpose::Credit, &[]).rng();
    let layouts: [&[usize]; 5] = [&[3, 1, 4], &[5], &[2, 2], &[6, 3, 1, 2], &[4]];
    let mut logprobs = Vec::new();
    let mut entropies = Vec::new();
    let sequences = layouts
        .iter()
        .map(|lengths| {
            let tokens: usize = lengths.iter().sum();
            let old: Vec<f32> = (0..tokens).map(|_| (-3.0 * rng.uniform() - 0.01) as f32).collect();
            let mut draw = |scale: f64| -> Vec<f64> { (0..tokens).map(|_| scale * rng.normal()).collect() };
            let shared = draw(0.4)[0];
            let drift = draw(0.5);
            logprobs.push(
                old.iter()
                    .zip(&drift)
                    .map(|(&old, drift)| f64::from(old) + drift + shared)
                    .collect::<Vec<_>>(),
            );
            entropies.push(draw(1.0).iter().map(|value| value.abs()).collect::<Vec<_>>());
            let token_advantages = draw(1.5);
            let reference = old.iter().zip(draw(0.3)).map(|(&old, d)| old + d as f32).collect();
            ObjectiveSequence {
                success: false,
                spans: spans(lengths),
                ref_logprobs: Some(reference),
                advantages: if per_token {
                    Advantages::PerToken(token_advantages)
                } else {
                    Advantages::PerSpan(token_advantages[..lengths.len()].to_vec())
                },
                mask: masked.then(|| (0..tokens).map(|token| token % 3 != 1).collect()),
                old_logprobs: old,
            }
        })
        .collect();
    (ObjectiveBatch::new(sequences), logprobs, entropies)
}

fn total(objective: &PolicyObjective, logprobs: &[Vec<f64>], entropies: &[Vec<f64>]) -> f64 {
    (0..logprobs.len())
        .map(|index| objective.gradient(index, &logprobs[index], &entropies[index]).unwrap().loss)
        .sum()
}

fn worst_error(
    objective: &PolicyObjective,
    logprobs: &[Vec<f64>],
    entropies: &[Vec<f64>],
    scale: f64,
) -> f64 {
    let step = 1e-5;
    let mut worst: f64 = 0.0;
    for index in 0..logprobs.len() {
        let gradient = objective.gradient(index, &logprobs[index], &entropies[index]).unwrap();
        let loss = |l: &[f64], h: &[f64]| objective.gradient(index, l, h).unwrap().loss;
        for token in 0..logprobs[index].len() {
            for entropy in [false, true] {
                let closed = if entropy {
                    gradient.d_entropies.get(token).copied().unwrap_or(0.0)
                } else {
                    gradient.d_logprobs[token]
                } * scale;
                let at = |delta: f64| {
                    let (mut l, mut h) = (logprobs[index].clone(), entropies[index].clone());
                    if entropy {
                        h[token] += delta;
                    } else {
                        l[token] += delta;
                    }
                    loss(&l, &h)
                };
                let difference =
                    (8.0 * (at(step) - at(-step)) - (at(2.0 * step) - at(-2.0 * step))) / (12.0 * step);
                worst = worst.max((closed - difference).abs() / difference.abs().max(1e-3));
            }
        }
    }
    worst
}

#[test]
fn gradients_equal_central_differences() {
    let mut clipped = (0.0, 0.0);
    for ratio in RATIOS {
        for (case, &aggregation) in AGGREGATIONS.iter().enumerate() {
            for (per_token, masked) in [(false, false), (true, false), (true, true)] {
                for estimator in [KlEstimator::K1, KlEstimator::K2, KlEstimator::K3] {
                    let (batch, logprobs, entropies) = random(case as u64, per_token, masked);
                    let config = ObjectiveConfig {
                        ratio,
                        clip: Clip { low: 0.2, high: 0.28 },
                        dual_clip: Some(1.6),
                        loss_agg_mode: aggregation,
                        kl: KlConfig { coef: 0.05, estimator, ..KlConfig::default() },
                        entropy_coef: 0.01,
                        ..ObjectiveConfig::default()
                    };
                    let objective = PolicyObjective::new(&config, batch).unwrap();
                    let worst = worst_error(&objective, &logprobs, &entropies, 1.0);
                    assert!(worst < 1e-6, "{ratio:?} {aggregation:?} {estimator:?}: {worst}");
                    assert!(worst_error(&objective, &logprobs, &entropies, 1.01) > 1e-3);
                    for index in 0..logprobs.len() {
                        let metrics =
                            objective.gradient(index, &logprobs[index], &entropies[index]).unwrap().metrics;
                        clipped.0 += metrics.clipped_low;
                        clipped.1 += metrics.clipped_high;
                    }
                }
            }
        }
    }
    assert!(clipped.0 > 100.0 && clipped.1 > 100.0, "clipping was not active on both sides: {clipped:?}");
}

#[test]
fn the_turn_ratio_carries_the_gradient_of_every_unclipped_advantage() {
    // One turn of three tokens with advantages 1, 2, -1. Its ratio exp(0.3) = 1.3499 is above 1.2,
    // so only the negative advantage is unclipped, and all three tokens get its gradient.
    let batch = ObjectiveBatch::new(vec![ObjectiveSequence {
        advantages: Advantages::PerToken(vec![1.0, 2.0, -1.0]),
        ..ObjectiveSequence::new(spans(&[3]), vec![-1.0; 3], vec![0.0])
    }]);
    let config = ObjectiveConfig { ratio: RatioKind::Turn, ..ObjectiveConfig::default() };
    let objective = PolicyObjective::new(&config, batch).unwrap();
    let gradient = objective.gradient(0, &[-1.0 + 0.9, -1.0, -1.0], &[]).unwrap();
    let ratio = 0.3_f64.exp();
    let expected = ratio / 3.0 / 3.0;
    for &slope in &gradient.d_logprobs {
        assert!((slope - expected).abs() < 1e-12, "{gradient:?}");
    }
    assert!((gradient.loss - (-(1.2 + 2.4) + ratio) / 3.0).abs() < 1e-12);
    assert_eq!(gradient.metrics.clipped_high, 2.0);
    assert_eq!(gradient.metrics.log_ratio_above[..3], [3.0; 3]);
    assert_eq!(gradient.metrics.log_ratio_above[4..], [0.0; 3]);
}

fn slopes(ratio: RatioKind, batch: &ObjectiveBatch, index: usize, logprobs: &[f64]) -> (Vec<f64>, f64) {
    let config = ObjectiveConfig { ratio, ..ObjectiveConfig::default() };
    let gradient =
        PolicyObjective::new(&config, batch.clone()).unwrap().gradient(index, logprobs, &[]).unwrap();
    (gradient.d_logprobs, gradient.metrics.policy_loss)
}

#[test]
fn a_detached_sequence_ratio_leaves_every_turn_its_own_advantage() {
    // Two turns of one and two tokens with advantages 2 and -1. The sequence's ratio exp(0.3) is
    // above 1.2, so the first turn is clipped, and gets the second's -1 only through the ratio.
    let sequence = ObjectiveSequence::new(spans(&[1, 2]), vec![-1.0; 3], vec![2.0, -1.0]);
    let batch = ObjectiveBatch::new(vec![sequence]);
    let logprobs = [-1.0 + 0.9, -1.0, -1.0];
    let ratio = 0.3_f64.exp();
    let ((through, loss), (detached, same_loss)) = (
        slopes(RatioKind::Sequence, &batch, 0, &logprobs),
        slopes(RatioKind::SequenceToken, &batch, 0, &logprobs),
    );
    assert_eq!(loss, same_loss);
    for (slope, expected) in through.iter().zip([ratio * 2.0 / 9.0; 3]) {
        assert!((slope - expected).abs() < 1e-12, "{through:?}");
    }
    for (slope, expected) in detached.iter().zip([0.0, ratio / 3.0, ratio / 3.0]) {
        assert!((slope - expected).abs() < 1e-12, "{detached:?}");
    }
}

#[test]
fn a_detached_sequence_ratio_is_the_sequences_where_all_advantages_are_equal() {
    let (mut batch, logprobs, _) = random(5, false, true);
    let differ = |batch: &ObjectiveBatch| {
        let pairs = (0..batch.sequences.len()).map(|index| {
            let [one, other] = [RatioKind::Sequence, RatioKind::SequenceToken]
                .map(|ratio| slopes(ratio, batch, index, &logprobs[index]).0);
            one.iter().zip(&other).map(|(one, other)| (one - other).abs()).fold(0.0, f64::max)
        });
        pairs.fold(0.0, f64::max)
    };
    assert!(differ(&batch) > 1e-3, "turns of one sequence have advantages of their own");
    for (index, sequence) in batch.sequences.iter_mut().map(Arc::make_mut).enumerate() {
        sequence.advantages = Advantages::PerSpan(vec![index as f64 - 1.5; sequence.spans.len()]);
    }
    assert!(differ(&batch) < 1e-15);
}

#[test]
fn log_ratios_are_counted_by_their_size() {
    let batch = ObjectiveBatch::new(vec![ObjectiveSequence::new(spans(&[5]), vec![-20.0; 5], vec![1.0])]);
    let objective = PolicyObjective::new(&ObjectiveConfig::default(), batch).unwrap();
    // Log-ratios of both signs count per token; bounds are 0.01, 0.03, 0.1, 0.3, 1, 3 and 10.
    let gradient = objective.gradient(0, &[-20.0, -19.98, -20.2, -18.0, -32.0], &[]).unwrap();
    let mut metrics = gradient.metrics.clone();
    assert_eq!(metrics.log_ratio_above, [4.0, 3.0, 3.0, 2.0, 2.0, 1.0, 1.0]);
    metrics.add(&gradient.metrics);
    assert_eq!(metrics.log_ratio_above, [8.0, 6.0, 6.0, 4.0, 4.0, 2.0, 2.0]);
    assert_eq!((metrics.tokens, metrics.max_log_ratio), (10.0, 12.0));
}

#[test]
fn aggregations_by_hand() {
    // At ratio 1 the loss is -sum weight * A. Two sequences: turns of 1 and 3 tokens, a turn of 2.
    let batch = ObjectiveBatch::new(vec![
        ObjectiveSequence::new(spans(&[1, 3]), vec![-1.0; 4], vec![1.0, 2.0]),
        ObjectiveSequence::new(spans(&[2]), vec![-1.0; 2], vec![-3.0]),
    ]);
    for (aggregation, expected) in [
        (Aggregation::TokenMean, -(1.0 + 6.0 - 6.0) / 6.0),
        (Aggregation::SeqMeanTokenMean, -(7.0 / 4.0 - 3.0) / 2.0),
        (Aggregation::SeqMeanTokenSum, -(7.0 - 6.0) / 2.0),
        (Aggregation::TurnMean, -(1.0 + 2.0 - 3.0) / 3.0),
    ] {
        let config = ObjectiveConfig { loss_agg_mode: aggregation, ..ObjectiveConfig::default() };
        let objective = PolicyObjective::new(&config, batch.clone()).unwrap();
        let loss = total(&objective, &[vec![-1.0; 4], vec![-1.0; 2]], &[vec![], vec![]]);
        assert!((loss - expected).abs() < 1e-12, "{aggregation:?}: {loss} {expected}");
    }
}

#[test]
fn sequences_without_a_gradient_count_in_the_mean_though_they_are_left_out() {
    let acting = ObjectiveSequence::new(spans(&[1, 3]), vec![-1.0; 4], vec![1.0, -2.0]);
    let zero = ObjectiveSequence {
        mask: Some(vec![true, true, false, true]),
        ..ObjectiveSequence::new(spans(&[3, 1]), vec![-1.0; 4], vec![0.0, 0.0])
    };
    for aggregation in [
        Aggregation::TokenMean,
        Aggregation::SeqMeanTokenMean,
        Aggregation::SeqMeanTokenSum,
        Aggregation::TurnMean,
    ] {
        let config = ObjectiveConfig { loss_agg_mode: aggregation, ..ObjectiveConfig::default() };
        let gradient = |batch: ObjectiveBatch| {
            let objective = PolicyObjective::new(&config, batch).unwrap();
            objective.gradient(0, &[-1.0; 4], &[]).unwrap().d_logprobs
        };
        let whole = gradient(ObjectiveBatch::new(vec![acting.clone(), zero.clone()]));
        let mut left_out = LeftOut::default();
        left_out.add(&zero);
        assert_eq!(left_out, LeftOut { tokens: 3, sequences: 1, turns: 2 });
        let cut = ObjectiveBatch { left_out, ..ObjectiveBatch::new(vec![acting.clone()]) };
        assert_eq!(gradient(cut), whole, "{aggregation:?}");
        let alone = gradient(ObjectiveBatch::new(vec![acting.clone()]));
        assert!(alone.iter().zip(&whole).all(|(one, all)| one.abs() > 1.5 * all.abs()), "{aggregation:?}");
    }
}

#[test]
fn kl_estimators_by_hand() {
    // d = ln pi - ln ref = 0.5
    for (estimator, value, slope) in [
        (KlEstimator::K1, 0.5, 1.0),
        (KlEstimator::K2, 0.125, 0.5),
        (KlEstimator::K3, 0.106_530_659_712_633_4, 0.393_469_340_287_366_6),
    ] {
        let (got, derivative) = turnwise_objective::kl_estimate(estimator, -1.0, -1.5);
        assert!((got - value).abs() < 1e-15 && (derivative - slope).abs() < 1e-15, "{estimator:?}");
    }
    // Beyond its bound k3 is constant.
    for d in [20.5, 25.0, -20.5, -25.0] {
        let bound = turnwise_objective::kl_estimate(KlEstimator::K3, f64::copysign(20.0, d), 0.0).0;
        assert_eq!(turnwise_objective::kl_estimate(KlEstimator::K3, d, 0.0), (bound, 0.0), "{d}");
    }
    assert!(turnwise_objective::kl_estimate(KlEstimator::K3, -19.9, 0.0).1 < -1e8);
    let shaped = turnwise_objective::reward_kl(KlEstimator::K1, 0.1, &[-1.0, -2.0], &[-1.5, -2.25]);
    assert!((shaped - 0.075).abs() < 1e-12);
}

#[test]
fn the_loss_does_not_depend_on_the_order_of_evaluation() {
    // Reordering the batch must permute the results bit for bit.
    for ratio in RATIOS {
        for aggregation in AGGREGATIONS {
            let (batch, logprobs, entropies) = random(11, true, true);
            let config = ObjectiveConfig { ratio, loss_agg_mode: aggregation, ..ObjectiveConfig::default() };
            let sequences = batch.sequences.iter().rev().cloned().collect();
            let reversed = ObjectiveBatch { sequences, ..ObjectiveBatch::default() };
            let forward = PolicyObjective::new(&config, batch).unwrap();
            let backward = PolicyObjective::new(&config, reversed).unwrap();
            let last = logprobs.len() - 1;
            for index in 0..logprobs.len() {
                let one = forward.gradient(index, &logprobs[index], &entropies[index]).unwrap();
                let other = backward.gradient(last - index, &logprobs[index], &entropies[index]).unwrap();
                assert_eq!(one, other);
            }
        }
    }
}

#[test]
fn masked_tokens_never_matter() {
    for ratio in RATIOS {
        for aggregation in AGGREGATIONS {
            let (batch, logprobs, entropies) = random(12, true, true);
            let config = ObjectiveConfig {
                ratio,
                loss_agg_mode: aggregation,
                kl: KlConfig { coef: 0.1, ..KlConfig::default() },
                entropy_coef: 0.1,
                ..ObjectiveConfig::default()
            };
            let clean = PolicyObjective::new(&config, batch.clone()).unwrap();
            let mut dirty = batch.clone();
            let (mut dirty_logprobs, mut dirty_entropies) = (logprobs.clone(), entropies.clone());
            for (index, sequence) in dirty.sequences.iter_mut().map(Arc::make_mut).enumerate() {
                let mask = sequence.mask.clone().unwrap();
                for token in (0..mask.len()).filter(|&token| !mask[token]) {
                    sequence.old_logprobs[token] = f32::NEG_INFINITY;
                    sequence.ref_logprobs.as_mut().unwrap()[token] = f32::NAN;
                    if let Advantages::PerToken(values) = &mut sequence.advantages {
                        values[token] = f64::NAN;
                    }
                    dirty_logprobs[index][token] = f64::NAN;
                    dirty_entropies[index][token] = f64::INFINITY;
                }
            }
            let dirty = PolicyObjective::new(&config, dirty).unwrap();
            for index in 0..logprobs.len() {
                let one = clean.gradient(index, &logprobs[index], &entropies[index]).unwrap();
                let other = dirty.gradient(index, &dirty_logprobs[index], &dirty_entropies[index]).unwrap();
                assert_eq!(one, other);
            }
        }
    }
}

#[test]
fn zero_advantage_gives_zero_gradient() {
    for ratio in RATIOS {
        let (mut batch, logprobs, _) = random(13, false, false);
        for sequence in batch.sequences.iter_mut().map(Arc::make_mut) {
            sequence.advantages = Advantages::PerSpan(vec![0.0; sequence.spans.len()]);
        }
        let objective =
            PolicyObjective::new(&ObjectiveConfig { ratio, ..ObjectiveConfig::default() }, batch).unwrap();
        for (index, values) in logprobs.iter().enumerate() {
            let gradient = objective.gradient(index, values, &[]).unwrap();
            assert_eq!(gradient.loss, 0.0);
            assert!(gradient.d_logprobs.iter().all(|&slope| slope == 0.0));
        }
    }
}

#[test]
fn extreme_log_ratios_stay_finite() {
    let batch =
        ObjectiveBatch::new(vec![ObjectiveSequence::new(spans(&[2]), vec![-1000.0, -0.5], vec![-1.0])]);
    let objective = PolicyObjective::new(&ObjectiveConfig::default(), batch).unwrap();
    let gradient = objective.gradient(0, &[-0.1, -900.0], &[]).unwrap();
    assert!(gradient.loss.is_finite());
    assert_eq!(gradient.d_logprobs, [0.0, 0.0]);
}

#[test]
fn the_f32_door_rounds_the_f64_core() {
    let (batch, logprobs, entropies) = random(14, false, false);
    let config = ObjectiveConfig { entropy_coef: 0.01, ..ObjectiveConfig::default() };
    let objective = PolicyObjective::new(&config, batch).unwrap();
    assert!(objective.passes().entropies);
    let narrow = |values: &[f64]| values.iter().map(|&value| value as f32).collect::<Vec<_>>();
    let (l, h) = (narrow(&logprobs[0]), narrow(&entropies[0]));
    let through =
        objective.evaluate(0, TokenStatistics { logprobs: &l, entropies: &h, reference_kls: &[] }).unwrap();
    let widen = |values: &[f32]| values.iter().copied().map(f64::from).collect::<Vec<_>>();
    let core = objective.gradient(0, &widen(&l), &widen(&h)).unwrap();
    assert_eq!(through, core.into());
}

#[test]
fn wrong_input_is_named() {
    let config = ObjectiveConfig::default();
    let make = |old: Vec<f32>, advantages: Vec<f64>| {
        let sequences = vec![ObjectiveSequence::new(spans(&[2]), old, advantages)];
        PolicyObjective::new(&config, ObjectiveBatch::new(sequences))
    };
    let text = |result: Result<PolicyObjective, _>| {
        result.err().map(|error: turnwise_core::ObjectiveError| error.to_string()).unwrap()
    };
    assert!(text(make(vec![-1.0], vec![1.0])).contains("old_logprobs has 1 entries, 2 expected"));
    assert!(text(make(vec![-1.0, f32::NAN], vec![1.0])).contains("token 1: old_logprobs is NaN"));
    assert!(text(make(vec![-1.0; 2], vec![1.0, 2.0])).contains("one per span"));
    let with_kl = ObjectiveConfig { kl: KlConfig { coef: 0.1, ..KlConfig::default() }, ..config.clone() };
    let sequences = vec![ObjectiveSequence::new(spans(&[2]), vec![-1.0; 2], vec![1.0])];
    assert!(
        text(PolicyObjective::new(&with_kl, ObjectiveBatch::new(sequences))).contains("needs ref_logprobs")
    );
    let bad = ObjectiveConfig { clip: Clip { low: 1.5, high: 0.2 }, ..config };
    assert!(
        text(PolicyObjective::new(&bad, ObjectiveBatch::default()))
            .contains("clip.low = 1.5: must be at least 0 and at most 1")
    );
}

#[test]
fn the_config_reads_both_ways_of_writing_a_clip_and_refuses_unknown_keys() {
    let read = |text: &str| serde_json::from_str::<ObjectiveConfig>(text);
    let config =
        read(r#"{"ratio":"turn","clip":[0.2,0.28],"kl":{"coef":0.01,"apply_to":"reward"}}"#).unwrap();
    assert_eq!(config.clip, read(r#"{"clip":{"low":0.2,"high":0.28}}"#).unwrap().clip);
    assert_eq!(config.kl.place, KlPlace::Reward);
    assert!(!config.needs_reference());
    assert!(read(r#"{"ratios":"turn"}"#).unwrap_err().to_string().contains("ratios"));
    let again = serde_json::to_string(&config).unwrap();
    assert_eq!(read(&again).unwrap(), config);
}

#[test]
fn supervised_is_the_weighted_mean_over_the_batch() {
    let objective = SupervisedObjective::new(vec![vec![1.0, 0.0, 2.0], vec![1.0]]).unwrap();
    let one = objective.gradient(0, &[-1.0, f64::NEG_INFINITY, -3.0]).unwrap();
    let two = objective.gradient(1, &[-2.0]).unwrap();
    assert!((one.loss + two.loss - (1.0 + 6.0 + 2.0) / 4.0).abs() < 1e-15);
    assert_eq!(one.d_logprobs, [-0.25, 0.0, -0.5]);
    assert_eq!(two.d_logprobs, [-0.25]);
    assert_eq!(one.metrics.tokens + two.metrics.tokens, 3.0);
    assert!(SupervisedObjective::uniform(&[0]).is_err());
    assert!(objective.gradient(0, &[-1.0]).is_err());
}

#[test]
fn a_config_as_a_user_writes_it() {
    let text =
        "ratio = \"turn\"\nclip = [0.2, 0.28]\ndual_clip = 3\nkl = { coef = 0.01, apply_to = \"reward\" }\n";
    let config: ObjectiveConfig = toml::from_str(text).unwrap();
    assert_eq!((config.clip.high, config.dual_clip), (0.28, Some(3.0)));
    let written = toml::to_string(&config).unwrap();
    assert!(written.contains("loss_agg_mode = \"token-mean\""), "defaults are spelled out: {written}");
    assert_eq!(toml::from_str::<ObjectiveConfig>(&written).unwrap(), config);
    let wrong = toml::from_str::<ObjectiveConfig>("kl = { coeff = 1 }").unwrap_err().to_string();
    assert!(wrong.contains("coeff") && wrong.contains("coef"), "{wrong}");
}

#[test]
fn the_full_divergence_weighs_as_the_loss_does() {
    let config = ObjectiveConfig {
        kl: KlConfig { coef: 0.3, estimator: KlEstimator::Full, ..KlConfig::default() },
        ..ObjectiveConfig::default()
    };
    let spans = vec![TurnSpan { turn: 0, start: 1, end: 3 }];
    let mut sequence = ObjectiveSequence::new(spans, vec![-1.0, -1.0], vec![0.0]);
    let batch = ObjectiveBatch::new(vec![sequence.clone()]);
    let objective = PolicyObjective::new(&config, batch).unwrap();
    assert!(objective.passes().reference_kls);
    let found = objective.gradient_with(0, &[-1.0, -1.0], &[], &[0.2, 0.6]).unwrap();
    assert!((found.loss - 0.3 * 0.4).abs() < 1e-12);
    assert_eq!(found.d_reference_kls, [0.15, 0.15]);
    assert!(objective.gradient_with(0, &[-1.0, -1.0], &[], &[0.2]).is_err());
    let given = ObjectiveSequence { ref_logprobs: Some(vec![-3.0, -3.0]), ..sequence.clone() };
    let objective = PolicyObjective::new(&config, ObjectiveBatch::new(vec![given])).unwrap();
    let both = objective.gradient_with(0, &[-1.0, -1.0], &[], &[0.2, 0.6]).unwrap();
    assert_eq!((both.loss, both.metrics.reference_kl), (found.loss, found.metrics.reference_kl));
    sequence.mask = Some(vec![true, false]);
    let objective = PolicyObjective::new(&config, ObjectiveBatch::new(vec![sequence])).unwrap();
    let found = objective.gradient_with(0, &[-1.0, -1.0], &[], &[0.2, 0.6]).unwrap();
    assert_eq!((found.loss, found.d_reference_kls), (0.3 * 0.2, vec![0.3, 0.0]));
    let in_reward = KlConfig { place: KlPlace::Reward, ..config.kl.clone() };
    assert!(ObjectiveConfig { kl: in_reward, ..config }.check().is_err());
}
