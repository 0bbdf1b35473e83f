//! Value loss, selective term, normalization and adaptive KL coefficient.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use turnwise_core::{MaskedContextStatistics, Objective, Purpose, Rng, Seed, TokenStatistics, TurnSpan};
use turnwise_objective::{
    AdaptiveKl, Advantages, BiasNorm, BiasSum, FullKls, Loss, LossTerm, MaskedLogprobs, MinibatchLoss,
    NormalizationConfig, ObjectiveBatch, ObjectiveConfig, ObjectiveSequence, PolicyObjective, RatioKind,
    Registry, SelectiveConfig, SelectiveEstimator, SelectiveObjective, SelectivePenalty, ValueConfig,
    ValueObjective,
};

fn rng(seed: u64) -> Rng {
    Seed::derive(seed, Purpose::Credit, &[99]).rng()
}

fn normals(rng: &mut Rng, count: usize) -> Vec<f64> {
    (0..count).map(|_| rng.normal()).collect()
}

fn span(turn: usize, start: usize, end: usize) -> TurnSpan {
    TurnSpan { turn, start, end }
}

/// Uses fourth-order central differences.
fn worst(x: &[f64], derivative: &[f64], loss: impl Fn(&[f64]) -> f64) -> f64 {
    let step = 1e-5;
    (0..x.len())
        .map(|index| {
            let at = |delta: f64| {
                let mut x = x.to_vec();
                x[index] += delta;
                loss(&x)
            };
            let difference =
                (8.0 * (at(step) - at(-step)) - (at(2.0 * step) - at(-2.0 * step))) / (12.0 * step);
            (derivative[index] - difference).abs() / difference.abs().max(1e-4)
        })
        .fold(0.0, f64::max)
}

#[test]
fn a_value_inside_of_the_clip_range_is_not_clipped_by_rounding() {
    let mut rng = Seed::derive(3, Purpose::Credit, &[9]).rng();
    let mut draw = |scale: f64| (0..1000).map(|_| scale * rng.normal()).collect::<Vec<f64>>();
    let (mut values, mut old) = (draw(0.1), draw(0.1));
    // In floats `-0.3 + (0.1 - -0.3)` is above 0.1, hence further from 0.
    (values[0], old[0]) = (0.1, -0.3);
    let config = ValueConfig { clip: 2.0 };
    let objective = ValueObjective::new(&config, vec![&old], vec![&[0.0; 1000]], Vec::new()).unwrap();
    let found = objective.gradient(0, &values).unwrap();
    assert_eq!(found.clipped, 0.0);
    assert_eq!(found.d_values[0], 0.1 / 1000.0);
}

fn rows(rows: &[Vec<f64>]) -> Vec<&[f64]> {
    rows.iter().map(Vec::as_slice).collect()
}

#[test]
fn the_value_loss_and_its_derivative() {
    let mut rng = rng(1);
    let old: Vec<Vec<f64>> = (0..3).map(|_| normals(&mut rng, 8)).collect();
    let returns: Vec<Vec<f64>> = (0..3).map(|_| normals(&mut rng, 8)).collect();
    let mask = [true, true, true, false, true, true, true, true];
    let config = ValueConfig { clip: 0.2 };
    let objective = ValueObjective::new(&config, rows(&old), rows(&returns), vec![&mask; 3]).unwrap();
    let mut clipped = 0.0;
    for index in 0..3 {
        let values: Vec<f64> = old[index].iter().map(|old| old + 0.5 * rng.normal()).collect();
        let gradient = objective.gradient(index, &values).unwrap();
        clipped += gradient.clipped;
        let loss = |values: &[f64]| objective.gradient(index, values).unwrap().loss;
        assert!(worst(&values, &gradient.d_values, loss) < 1e-6);
        let wrong: Vec<f64> = gradient.d_values.iter().map(|slope| slope * 1.01).collect();
        assert!(worst(&values, &wrong, loss) > 1e-3);
        let mut other = values;
        other[3] = f64::NAN;
        assert_eq!(objective.gradient(index, &other).unwrap(), gradient);
    }
    assert!(clipped >= 2.0, "{clipped}");
    // Old 0, target 1, value 0.5, clip 0.2: max(0.25, 0.64) / 2.
    let objective = ValueObjective::new(&config, vec![&[0.0]], vec![&[1.0]], Vec::new()).unwrap();
    let gradient = objective.gradient(0, &[0.5]).unwrap();
    assert!((gradient.loss - 0.32).abs() < 1e-15 && gradient.d_values == [0.0]);
}

#[test]
fn the_selective_term_by_hand() {
    let sequences = vec![vec![(span(0, 1, 3), true), (span(1, 5, 6), false)], vec![(span(0, 1, 2), true)]];
    let config = SelectiveConfig { alpha: 0.5, gamma: 0.25, ..SelectiveConfig::default() };
    let objective = SelectiveObjective::new(&config, sequences.clone()).unwrap();
    let kls = FullKls { kl: &[1.0, 3.0, f64::NAN], reference_kl: &[0.4, 0.8, f64::NAN] };
    let gradient = objective.from_kls(0, kls).unwrap();
    assert!((gradient.loss + (0.5 * 2.0 - 0.25 * 0.6) / 3.0).abs() < 1e-15);
    assert_eq!(gradient.d_first, [-0.5 / 6.0, -0.5 / 6.0, 0.0]);
    assert!((gradient.d_second[0] - 0.25 / 6.0).abs() < 1e-15 && gradient.d_second[2] == 0.0);
    assert_eq!((gradient.outliers, gradient.kl), (1, 2.0));
    assert!(objective.needs(0) && !objective.needs(2));
    for (penalty, base) in [(SelectivePenalty::Single, 0.01), (SelectivePenalty::Increased, 0.26)] {
        let config = SelectiveConfig { penalty, ..config.clone() };
        assert!((config.kl_coef(0.01) - base).abs() < 1e-15 && config.penalty_coef() == 0.0);
        let objective = SelectiveObjective::new(&config, sequences.clone()).unwrap();
        assert_eq!(objective.from_kls(0, kls).unwrap().d_second, [0.0; 3]);
    }
    let read: SelectiveConfig = serde_json::from_str(r#"{"mask":"goal+history","estimator":"k3"}"#).unwrap();
    assert_eq!(read, serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap());
    assert!(serde_json::from_str::<SelectiveConfig>(r#"{"beta":1}"#).is_err());
}

#[test]
fn the_selective_gradient_flows_through_both_prompts() {
    let sequences = vec![vec![(span(0, 1, 5), true), (span(1, 7, 9), false), (span(2, 10, 13), true)]];
    let mut rng = rng(2);
    let draw = |rng: &mut Rng| normals(rng, 9).iter().map(|x| 0.5 * x - 1.0).collect::<Vec<_>>();
    let (full, masked, reference) = (draw(&mut rng), draw(&mut rng), draw(&mut rng));
    let config = SelectiveConfig { alpha: 0.3, gamma: 0.2, ..SelectiveConfig::default() };
    let objective = SelectiveObjective::new(&config, sequences.clone()).unwrap();
    let at = |full: &[f64], masked: &[f64]| {
        objective.from_logprobs(0, MaskedLogprobs { full, masked, reference: &reference }).unwrap()
    };
    let gradient = at(&full, &masked);
    assert!(worst(&full, &gradient.d_first, |x| at(x, &masked).loss) < 1e-6);
    assert!(worst(&masked, &gradient.d_second, |x| at(&full, x).loss) < 1e-6);
    let wrong: Vec<f64> = gradient.d_second.iter().map(|slope| slope * 1.01).collect();
    assert!(worst(&masked, &wrong, |x| at(&full, x).loss) > 1e-3);
    // With `detach_masked`, only the penalty acts on the masked prompt.
    let detach = |alpha: f64| {
        let config = SelectiveConfig { alpha, detach_masked: true, ..config.clone() };
        let objective = SelectiveObjective::new(&config, sequences.clone()).unwrap();
        let logprobs = MaskedLogprobs { full: &full, masked: &masked, reference: &reference };
        objective.from_logprobs(0, logprobs).unwrap().d_second
    };
    assert_eq!(detach(0.3), detach(0.0));
    assert_ne!(detach(0.3), gradient.d_second);
}

fn policy(ratio: RatioKind) -> (PolicyObjective, Vec<Vec<f64>>) {
    let mut rng = rng(3);
    let spans = [vec![span(0, 1, 4), span(1, 6, 8)], vec![span(0, 2, 6)]];
    let mut logprobs = Vec::new();
    let sequences = spans
        .iter()
        .map(|spans| {
            let tokens = spans.iter().map(TurnSpan::len).sum();
            let old: Vec<f32> = (0..tokens).map(|_| -1.0 - rng.uniform() as f32).collect();
            let shared = 0.6 * rng.normal();
            logprobs.push(old.iter().map(|&old| f64::from(old) + shared + 0.4 * rng.normal()).collect());
            ObjectiveSequence {
                advantages: Advantages::PerToken(normals(&mut rng, tokens)),
                ..ObjectiveSequence::new(spans.clone(), old, vec![0.0; spans.len()])
            }
        })
        .collect();
    let config = ObjectiveConfig { ratio, ..ObjectiveConfig::default() };
    (PolicyObjective::new(&config, ObjectiveBatch::new(sequences)).unwrap(), logprobs)
}

#[test]
fn the_clipping_bias_and_its_gradient() {
    for ratio in [RatioKind::Token, RatioKind::Turn, RatioKind::Sequence] {
        let (objective, logprobs) = policy(ratio);
        let mut sum = BiasSum::default();
        let mut entries = Vec::new();
        for (index, logprobs) in logprobs.iter().enumerate() {
            let bias = objective.clipping_bias(index, logprobs).unwrap();
            // The step is too small to cross a clip bound.
            let loss = |x: &[f64]| objective.clipping_bias(index, x).unwrap().entries.iter().sum::<f64>();
            assert!(worst(logprobs, &bias.d_logprobs, loss) < 1e-6, "{ratio:?}");
            let metrics = objective.gradient(index, logprobs, &[]).unwrap().metrics;
            assert_eq!(metrics.clipped_low + metrics.clipped_high, bias.clipped as f64);
            sum.add(&bias);
            entries.extend(bias.entries);
        }
        assert!(sum.clipped > 0, "{ratio:?}: nothing was clipped");
        let l2 = entries.iter().map(|x| x * x).sum::<f64>().sqrt();
        assert!((sum.token_norm() - l2).abs() < 1e-15);
        assert!((sum.scalar_norm() - entries.iter().sum::<f64>().abs()).abs() < 1e-15);
    }
}

#[test]
fn the_clipping_bias_of_a_detached_ratio_stays_with_its_token() {
    let (objective, logprobs) = policy(RatioKind::SequenceToken);
    let through = policy(RatioKind::Sequence).0;
    let mut clipped = 0;
    for (index, logprobs) in logprobs.iter().enumerate() {
        let bias = objective.clipping_bias(index, logprobs).unwrap();
        let other = through.clipping_bias(index, logprobs).unwrap();
        assert_eq!(
            (&bias.d_logprobs, &bias.entries, bias.clipped),
            (&bias.entries, &other.entries, other.clipped)
        );
        clipped += bias.clipped;
        assert!(other.clipped == 0 || bias.d_logprobs != other.d_logprobs);
    }
    assert!(clipped > 0);
}

#[test]
fn the_parameter_norm_is_that_of_the_gradient_of_the_bias() {
    // For a linear model, logprob = X theta, the norm of the gradient accumulated from the bias
    // objective must equal that of the bias's derivative w.r.t. theta.
    let (objective, logprobs) = policy(RatioKind::Turn);
    let mut rng = rng(4);
    let features: Vec<Vec<Vec<f64>>> =
        logprobs.iter().map(|row| row.iter().map(|_| normals(&mut rng, 3)).collect()).collect();
    let bias_at = |theta: &[f64]| -> f64 {
        let shifted = |index: usize| -> Vec<f64> {
            let dot = |x: &Vec<f64>| x.iter().zip(theta).map(|(a, b)| a * b).sum::<f64>();
            logprobs[index].iter().zip(&features[index]).map(|(lp, x)| lp + dot(x)).collect()
        };
        (0..logprobs.len())
            .map(|index| objective.clipping_bias(index, &shifted(index)).unwrap().entries.iter().sum::<f64>())
            .sum()
    };
    let narrow: Vec<Vec<f32>> = logprobs.iter().map(|row| row.iter().map(|&x| x as f32).collect()).collect();
    let statistics =
        |index: usize| TokenStatistics { logprobs: &narrow[index], entropies: &[], reference_kls: &[] };
    let minibatch = normalized(&objective, RatioKind::Turn, BiasNorm::Parameter);
    (0..narrow.len()).for_each(|index| _ = minibatch.evaluate(index, statistics(index)).unwrap());
    let pass = minibatch.second_pass().unwrap().unwrap();
    let mut gradient = vec![0.0; 3];
    for (index, features) in features.iter().enumerate() {
        let exact = objective.clipping_bias(index, &logprobs[index]).unwrap().d_logprobs;
        // Only sequences with clipped tokens are in the pass.
        let place = pass.sequences.iter().position(|&sequence| sequence == index);
        let through = place.map_or_else(
            || vec![0.0; exact.len()],
            |place| pass.objective.evaluate(place, statistics(index)).unwrap().d_logprobs,
        );
        for ((slope, through), x) in exact.iter().zip(through).zip(features) {
            assert!((slope - f64::from(through)).abs() < 1e-6);
            gradient.iter_mut().zip(x).for_each(|(sum, x)| *sum += slope * x);
        }
    }
    assert!(worst(&[0.0; 3], &gradient, bias_at) < 1e-6);
    let norm = gradient.iter().map(|x| x * x).sum::<f64>().sqrt();
    let config = NormalizationConfig { delta: norm / 2.0, ..NormalizationConfig::default() };
    assert!((config.factor(norm).unwrap() - 1.0 / norm).abs() < 1e-12);
    assert_eq!(NormalizationConfig::default().factor(0.3).unwrap(), 1.0);
    assert_eq!(NormalizationConfig { measure_only: true, ..config.clone() }.factor(norm).unwrap(), 1.0);
    assert!(NormalizationConfig { delta: 0.0, ..config }.factor(1.0).is_err());
}

fn normalized(objective: &PolicyObjective, ratio: RatioKind, norm: BiasNorm) -> MinibatchLoss {
    let normalization = Some(NormalizationConfig { norm, delta: 1e-9, ..NormalizationConfig::default() });
    let config = ObjectiveConfig { ratio, normalization, ..ObjectiveConfig::default() };
    let loss = Loss::new(&config, &Registry::builtin()).unwrap();
    loss.for_minibatch(objective.batch().clone(), &[]).unwrap()
}

#[test]
fn the_watch_sees_what_was_clipped_and_changes_nothing() {
    let (objective, logprobs) = policy(RatioKind::Token);
    let narrow: Vec<Vec<f32>> = logprobs.iter().map(|row| row.iter().map(|&x| x as f32).collect()).collect();
    let statistics =
        |index: usize| TokenStatistics { logprobs: &narrow[index], entropies: &[], reference_kls: &[] };
    let minibatch = normalized(&objective, RatioKind::Token, BiasNorm::Parameter);
    let token = normalized(&objective, RatioKind::Token, BiasNorm::Token);
    let scalar = normalized(&objective, RatioKind::Token, BiasNorm::Scalar);
    let mut expected = BiasSum::default();
    let mut clipped = Vec::new();
    for index in (0..narrow.len()).rev() {
        let seen = minibatch.evaluate(index, statistics(index)).unwrap();
        token.evaluate(index, statistics(index)).unwrap();
        scalar.evaluate(index, statistics(index)).unwrap();
        assert_eq!(seen, objective.evaluate(index, statistics(index)).unwrap());
    }
    for (index, row) in narrow.iter().enumerate() {
        let wide: Vec<f64> = row.iter().map(|&x| f64::from(x)).collect();
        let bias = objective.clipping_bias(index, &wide).unwrap();
        expected.add(&bias);
        if bias.clipped > 0 {
            clipped.push(index);
        }
    }
    assert!(!clipped.is_empty());
    assert_eq!(token.gradient_scale(0.0).unwrap().metrics[0].1, expected.token_norm());
    assert_eq!(scalar.gradient_scale(0.0).unwrap().metrics[0].1, expected.scalar_norm());
    let pass = minibatch.second_pass().unwrap().unwrap();
    assert_eq!(pass.sequences, clipped);
    assert!(pass.objective.evaluate(clipped.len(), statistics(0)).is_err());
}

#[test]
fn a_contrast_is_an_outlier_turn_of_its_own() {
    let config = SelectiveConfig::default();
    let spans = [TurnSpan { turn: 0, start: 2, end: 4 }, TurnSpan { turn: 3, start: 1, end: 4 }];
    let whole = SelectiveObjective::new(
        &config,
        vec![vec![(spans[0], true), (TurnSpan { turn: 1, start: 5, end: 7 }, false)], vec![(spans[1], true)]],
    )
    .unwrap();
    let masked_contexts = SelectiveObjective::for_masked_contexts(&config, &spans, 3).unwrap();
    let (kl, reference_kl) = ([0.3, 0.1, 0.4], [0.2, 0.5, 0.7]);
    let statistics = MaskedContextStatistics {
        full: &[0.0; 3],
        masked: &[0.0; 3],
        reference: &[0.0; 3],
        kl: &kl,
        reference_kl: &reference_kl,
    };
    let one = masked_contexts.evaluate_masked_context(1, statistics).unwrap();
    let same = whole.from_kls(1, FullKls { kl: &kl, reference_kl: &reference_kl }).unwrap();
    assert_eq!((one.loss, one.d_kl, one.d_reference_kl), (same.loss, same.d_first, same.d_second));
    let single = SelectiveConfig { penalty: SelectivePenalty::Single, ..config };
    let alone = SelectiveObjective::for_masked_contexts(&single, &spans, 3).unwrap();
    assert!(LossTerm::passes(&config).needs_reference() && !LossTerm::passes(&single).needs_reference());
    let found = alone
        .evaluate_masked_context(
            1,
            MaskedContextStatistics { reference: &[], reference_kl: &[], ..statistics },
        )
        .unwrap();
    assert!((found.loss + 0.01 * (0.8 / 3.0) / 3.0).abs() < 1e-12);
    let k3 =
        SelectiveConfig { estimator: SelectiveEstimator::K3, penalty: SelectivePenalty::Single, ..single };
    let k3 = SelectiveObjective::for_masked_contexts(&k3, &spans, 3).unwrap();
    let statistics = MaskedContextStatistics {
        full: &[-0.5, -1.0, -0.2],
        masked: &[-1.5, -1.0, -0.9],
        reference: &[],
        kl: &[],
        reference_kl: &[],
    };
    let found = k3.evaluate_masked_context(1, statistics).unwrap();
    assert!(found.d_full[0] < 0.0 && found.d_masked[0] > 0.0 && found.d_full[1] == 0.0);
}

#[test]
fn the_adaptive_coefficient_follows_its_target() {
    let kl = AdaptiveKl::default();
    assert_eq!(kl.next(0.1, 0.05), 0.1);
    assert!((kl.next(0.1, 0.0601) - 0.15).abs() < 1e-15);
    assert!((kl.next(0.15, 0.0199) - 0.075).abs() < 1e-15);
    assert_eq!(kl.next(0.075, f64::NAN), 0.075);
    assert_eq!((0..50).fold(0.1, |coef, _| kl.next(coef, 1.0)), 1.0);
    assert_eq!((0..50).fold(0.1, |coef, _| kl.next(coef, 0.0)), 1e-4);
    assert!(AdaptiveKl { target: 0.0, ..kl.clone() }.check().is_err() && kl.check().is_ok());
    // A start outside the bounds would jump in the first step.
    let start = |coef: f64| {
        let text = format!(r#"{{"kl": {{"coef": {coef}, "adaptive": {{}}}}}}"#);
        serde_json::from_str::<ObjectiveConfig>(&text).unwrap().check()
    };
    assert!(start(1.0).is_ok() && start(2.0).unwrap_err().to_string().contains("between 0.0001 and 1"));
}
