//! Properties of any batch of finite numbers.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use turnwise_core::TurnSpan;
use turnwise_objective::{
    Aggregation, Clip, Gradient, KlConfig, KlEstimator, ObjectiveBatch, ObjectiveConfig, ObjectiveSequence,
    PolicyObjective, RatioKind,
};

type Numbers = (ObjectiveSequence, Vec<f64>);

fn sequences(range: f64) -> impl Strategy<Value = Numbers> {
    prop::collection::vec(0..5_usize, 1..4).prop_flat_map(move |lengths| {
        let tokens: usize = lengths.iter().sum();
        let numbers = move || prop::collection::vec(-range..0.0_f64, tokens);
        let advantages = prop::collection::vec(-range..range, lengths.len());
        (Just(lengths), numbers(), numbers(), numbers(), advantages).prop_map(
            |(lengths, old, reference, logprobs, advantages)| {
                let mut start = 1;
                let spans = lengths.iter().enumerate().map(|(turn, &length)| {
                    start += length;
                    TurnSpan { turn, start: start - length, end: start }
                });
                let narrow = |values: &[f64]| values.iter().map(|&value| value as f32).collect::<Vec<_>>();
                let sequence = ObjectiveSequence {
                    ref_logprobs: Some(narrow(&reference)),
                    ..ObjectiveSequence::new(spans.collect(), narrow(&old), advantages)
                };
                (sequence, logprobs)
            },
        )
    })
}

fn configs() -> Vec<ObjectiveConfig> {
    let mut configs = Vec::new();
    for ratio in [RatioKind::Token, RatioKind::Turn, RatioKind::Sequence, RatioKind::SequenceToken] {
        for aggregation in [Aggregation::TokenMean, Aggregation::SeqMeanTokenSum, Aggregation::TurnMean] {
            for estimator in [KlEstimator::K1, KlEstimator::K2, KlEstimator::K3] {
                configs.push(ObjectiveConfig {
                    ratio,
                    loss_agg_mode: aggregation,
                    clip: Clip { low: 0.2, high: 0.28 },
                    kl: KlConfig { coef: 0.01, estimator, ..KlConfig::default() },
                    ..ObjectiveConfig::default()
                });
            }
        }
    }
    configs
}

fn evaluate(config: &ObjectiveConfig, numbers: &[Numbers]) -> Vec<Gradient> {
    let sequences = numbers.iter().map(|(sequence, _)| sequence.clone()).collect();
    let objective = PolicyObjective::new(config, ObjectiveBatch::new(sequences)).unwrap();
    let each = numbers.iter().enumerate();
    each.map(|(index, (_, logprobs))| objective.gradient(index, logprobs, &[]).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn any_finite_input_gives_finite_output(numbers in prop::collection::vec(sequences(1e4), 1..4)) {
        for config in configs() {
            for gradient in evaluate(&config, &numbers) {
                prop_assert!(gradient.loss.is_finite());
                prop_assert!(gradient.d_logprobs.iter().all(|slope| slope.is_finite()));
            }
        }
    }

    #[test]
    fn on_policy_every_ratio_has_the_same_loss(numbers in prop::collection::vec(sequences(2.0), 1..4)) {
        // At ratio 1 nothing is clipped, so all ratios have the same policy gradient.
        let numbers: Vec<Numbers> = numbers
            .into_iter()
            .map(|(sequence, _)| {
                let old = sequence.old_logprobs.iter().copied().map(f64::from).collect();
                (sequence, old)
            })
            .collect();
        let loss = |ratio| -> f64 {
            let config = ObjectiveConfig { ratio, ..ObjectiveConfig::default() };
            evaluate(&config, &numbers).iter().map(|gradient| gradient.loss).sum()
        };
        let token = loss(RatioKind::Token);
        prop_assert!((token - loss(RatioKind::Turn)).abs() < 1e-12);
        prop_assert!((token - loss(RatioKind::Sequence)).abs() < 1e-12);
    }

    #[test]
    fn the_token_and_turn_ratio_agree_on_turns_of_one_token(numbers in prop::collection::vec(sequences(2.0), 1..4)) {
        let single: Vec<Numbers> = numbers
            .into_iter()
            .map(|(sequence, logprobs)| {
                let tokens = sequence.response_tokens();
                let spans = (0..tokens).map(|turn| TurnSpan { turn, start: turn + 1, end: turn + 2 }).collect();
                let advantages = (0..tokens).map(|token| (token as f64).sin()).collect();
                let new = ObjectiveSequence::new(spans, sequence.old_logprobs, advantages);
                (new, logprobs)
            })
            .collect();
        let config = |ratio| ObjectiveConfig { ratio, ..ObjectiveConfig::default() };
        prop_assert_eq!(
            evaluate(&config(RatioKind::Token), &single),
            evaluate(&config(RatioKind::Turn), &single)
        );
    }

    #[test]
    fn clipping_never_lowers_the_loss(numbers in prop::collection::vec(sequences(2.0), 1..4)) {
        // min(w A, clip(w) A) is a lower bound of w A.
        for ratio in [RatioKind::Token, RatioKind::Turn, RatioKind::Sequence, RatioKind::SequenceToken] {
            let total = |clip: Clip| -> f64 {
                let config = ObjectiveConfig { ratio, clip, ..ObjectiveConfig::default() };
                evaluate(&config, &numbers).iter().map(|gradient| gradient.loss).sum()
            };
            let open = total(Clip { low: 1.0, high: 1e12 });
            prop_assert!(total(Clip::default()) >= open - 1e-9 * (1.0 + open.abs()));
        }
    }
}
