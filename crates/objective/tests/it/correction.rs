//! Rollout correction: weights, derivatives, rejected inputs.

use turnwise_core::TurnSpan;
use turnwise_objective::{
    Advantages, Aggregation, CorrectionLevel, CorrectionMode, ObjectiveBatch, ObjectiveConfig,
    ObjectiveSequence, PolicyObjective, RatioKind, RolloutCorrection,
};

const SAMPLED: [f32; 5] = [-1.0, -0.5, -2.0, -0.25, -3.0];
const OLD: [f32; 5] = [-0.5, -0.75, -2.0, -1.25, -1.5];

fn sequence(masked: bool) -> ObjectiveSequence {
    let spans = vec![TurnSpan { turn: 0, start: 2, end: 4 }, TurnSpan { turn: 1, start: 6, end: 9 }];
    let mask = masked.then(|| vec![true, true, true, false, true]);
    ObjectiveSequence { mask, ..ObjectiveSequence::new(spans, OLD.to_vec(), vec![1.0, -2.0]) }
}

fn correction(level: CorrectionLevel, mode: CorrectionMode) -> RolloutCorrection {
    RolloutCorrection { level, mode, cap: 2.0, floor: 0.5 }
}

fn close(found: &[f64], expected: &[f64]) -> bool {
    found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9)
}

/// Expected numbers come from NumPy in float64: `torch.exp(old - sampled)` with `clamp(max=cap)` or
/// `masked_fill`, as in TRL's `token_truncate`, `token_mask`, `sequence_truncate`, `sequence_mask`.
#[test]
fn weights_are_those_of_trl_and_verl() {
    let of = |level, mode| correction(level, mode).weights(0, &sequence(false), &SAMPLED).unwrap();
    let [a, b, c, d] = [1.6487212707001282, 0.7788007830714049, 1.0, 0.36787944117144233];
    let (weights, sums) = of(CorrectionLevel::Token, CorrectionMode::Truncate);
    assert!(close(&weights, &[a, b, c, d, 2.0]), "{weights:?}");
    assert_eq!((sums.tokens, sums.cut), (5.0, 1.0));
    assert!(close(&[sums.largest, sums.kl / 5.0], &[4.4816890703380645, -0.15]), "{sums:?}");
    let k3: f64 = [0.5_f64, -0.25, 0.0, -1.0, 1.5].iter().map(|log| log.exp() - 1.0 - log).sum();
    assert!(close(&[sums.k3], &[k3]), "{sums:?}");
    let total = a + b + c + d + 2.0;
    let square = a * a + b * b + c * c + d * d + 4.0;
    assert!(close(&[sums.effective_share()], &[total * total / (5.0 * square)]));
    let (weights, sums) = of(CorrectionLevel::Token, CorrectionMode::Mask);
    assert!(close(&weights, &[a, b, c, 0.0, 0.0]), "{weights:?}");
    assert_eq!(sums.cut, 2.0);
    // exp(0.5 - 0.25 - 1 + 1.5) = exp(0.75) = 2.117 is above the cap.
    let (weights, _) = of(CorrectionLevel::Sequence, CorrectionMode::Truncate);
    assert!(close(&weights, &[2.0; 5]), "{weights:?}");
    let (weights, sums) = of(CorrectionLevel::Sequence, CorrectionMode::Mask);
    assert!(close(&weights, &[0.0; 5]) && sums.effective_share() == 0.0, "{weights:?}");
    let wide = RolloutCorrection { cap: 3.0, ..correction(CorrectionLevel::Sequence, CorrectionMode::Mask) };
    let (weights, _) = wide.weights(0, &sequence(false), &SAMPLED).unwrap();
    assert!(close(&weights, &[2.117000016612675; 5]), "{weights:?}");
    let wide = RolloutCorrection { cap: 9.0, ..wide };
    let (weights, sums) = wide.weights(0, &sequence(true), &SAMPLED).unwrap();
    let product = 1.75_f64.exp();
    assert!(close(&weights, &[product, product, product, 0.0, product]), "{weights:?}");
    assert_eq!(sums.tokens, 4.0);
}

#[test]
fn equal_policies_change_nothing() {
    let same = sequence(false);
    for level in [CorrectionLevel::Token, CorrectionLevel::Sequence] {
        let mut corrected = same.clone();
        let sums = correction(level, CorrectionMode::Mask).apply(0, &mut corrected, &OLD).unwrap();
        assert_eq!(corrected.advantages, Advantages::PerToken(vec![1.0, 1.0, -2.0, -2.0, -2.0]));
        assert_eq!((sums.kl, sums.cut, sums.effective_share()), (0.0, 0.0, 1.0));
    }
}

/// The derivative of `sum_t weight_t c_t surrogate_t`, with clipping on both sides.
#[test]
fn gradients_equal_central_differences() {
    let current = [-0.1, -1.3, -2.05, -1.2, -1.55];
    for ratio in [RatioKind::Token, RatioKind::Turn, RatioKind::Sequence, RatioKind::SequenceToken] {
        for mode in [CorrectionMode::Truncate, CorrectionMode::Mask] {
            for level in [CorrectionLevel::Token, CorrectionLevel::Sequence] {
                let config = ObjectiveConfig {
                    ratio,
                    loss_agg_mode: Aggregation::TokenMean,
                    ..ObjectiveConfig::default()
                };
                let mut corrected = sequence(false);
                let correction = RolloutCorrection { cap: 3.0, ..correction(level, mode) };
                let (weights, _) = correction.weights(0, &corrected, &SAMPLED).unwrap();
                correction.apply(0, &mut corrected, &SAMPLED).unwrap();
                let of = |sequence: ObjectiveSequence| {
                    PolicyObjective::new(&config, ObjectiveBatch::new(vec![sequence])).unwrap()
                };
                let objective = of(corrected);
                let at = |logprobs: &[f64]| objective.gradient(0, logprobs, &[]).unwrap();
                let found = at(&current);
                if ratio == RatioKind::Token {
                    let plain = of(sequence(false)).gradient(0, &current, &[]).unwrap();
                    let scaled: Vec<f64> =
                        plain.d_logprobs.iter().zip(&weights).map(|(slope, weight)| slope * weight).collect();
                    assert!(close(&found.d_logprobs, &scaled), "{found:?}");
                    assert!(plain.d_logprobs[0] == 0.0 && plain.d_logprobs[1] != 0.0, "one side is clipped");
                }
                if ratio == RatioKind::SequenceToken {
                    // GSPO-token's gradient is not the derivative of its loss.
                    continue;
                }
                for token in 0..current.len() {
                    let moved = |by: f64| {
                        let mut logprobs = current;
                        logprobs[token] += by;
                        at(&logprobs).loss
                    };
                    let step = 1e-3;
                    let slope = (8.0 * (moved(step) - moved(-step))
                        - (moved(2.0 * step) - moved(-2.0 * step)))
                        / (12.0 * step);
                    let error = (slope - found.d_logprobs[token]).abs();
                    assert!(error < 1e-6, "{ratio:?} {mode:?} {level:?} token {token}: {slope} {found:?}");
                }
            }
        }
    }
}

#[test]
fn what_is_no_log_probability_is_rejected() {
    let rejected = |sampled: &[f32], masked: bool| {
        RolloutCorrection::default().weights(3, &sequence(masked), sampled).map(drop).unwrap_err().to_string()
    };
    assert!(rejected(&SAMPLED[..4], false).contains("log-probs of the sampler"));
    let mut broken = SAMPLED;
    broken[3] = f32::NAN;
    assert!(rejected(&broken, false).contains("log-ratio of learner and sampler"));
    assert!(RolloutCorrection::default().weights(0, &sequence(true), &broken).is_ok());
}
