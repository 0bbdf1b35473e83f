use std::ops::Range;

use super::*;
use crate::cpu::decoder::Workspace;
use crate::cpu::decoder::tests::{batch, config, parameters, sequence, whole_backward};
use crate::packing::Packing;
use crate::testing::{Probe, TensorDifferences};
use crate::{AdamWConfig, Compute};
use turnwise_core::{
    ContextMask, LossMetrics, MaskedContext, MaskedContextGradients, MaskedContextPass,
    MaskedContextStatistics, ObjectiveError, RequiredPasses, TokenBatch, TokenGradients, TokenStatistics,
};

mod masked_contexts;
mod prefixes;

fn learner(settings: LearnerConfig) -> NativeLearner {
    NativeLearner::new(parameters(&config(4, 2, true), 11).cast(), settings).unwrap()
}

fn sequences() -> Vec<TokenSequence> {
    [batch(23, 1), batch(23, 2), batch(23, 3)].concat()
}

fn distance(a: &[f32], b: &[f32]) -> f32 {
    let scale = a.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    a.iter().zip(b).fold(0.0f32, |most, (a, b)| most.max((a - b).abs())) / scale
}

#[test]
fn micro_batches_lanes_and_recomputation_change_nothing_but_rounding() {
    let batch = sequences();
    let run = |settings: LearnerConfig| {
        let mut learner = learner(settings);
        let report = learner.forward_backward(&TokenBatch::of(&batch), &Probe::PLAIN).unwrap();
        (report, learner.gradient(), learner.logprobs(&TokenBatch::of(&batch).sequences).unwrap())
    };
    let base = LearnerConfig { lanes: 1, micro_batch_tokens: 100_000, ..LearnerConfig::default() };
    let (report, gradient, logprobs) = run(base);
    for settings in [
        LearnerConfig { micro_batch_tokens: 1, ..base },
        LearnerConfig { micro_batch_tokens: 80, lanes: 3, ..base },
        LearnerConfig { recompute: true, ..base },
        LearnerConfig { lanes: 2, recompute: true, micro_batch_tokens: 50, ..base },
        LearnerConfig { lanes: 20, ..base },
    ] {
        let (other_report, other_gradient, other_logprobs) = run(settings);
        assert!((report.loss - other_report.loss).abs() < 1e-5 * report.loss.abs().max(1.0));
        assert_eq!(report.total_tokens, other_report.total_tokens);
        assert_eq!(report.metrics.tokens, other_report.metrics.tokens);
        assert!((report.metrics.entropy - other_report.metrics.entropy).abs() < 1e-3);
        assert!(distance(&gradient, &other_gradient) < 1e-5, "{}", distance(&gradient, &other_gradient));
        for (a, b) in logprobs.iter().zip(&other_logprobs) {
            assert_eq!(a.len(), b.len());
            assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5));
        }
        assert_eq!(run(settings).1, other_gradient);
    }
}

#[test]
fn scores_are_those_of_a_learner_at_that_temperature() {
    let batch = sequences();
    let at = |temperature| learner(LearnerConfig { temperature, ..LearnerConfig::default() });
    let (mut warm, mut cool) = (at(1.0), at(0.7));
    let entropy = cool.forward_backward(&TokenBatch::of(&batch), &Probe::PLAIN).unwrap().metrics.entropy;
    let gradient = warm.gradient();
    let scores = warm.score(&TokenBatch::of(&batch).sequences, 0.7).unwrap();
    let logprobs: Vec<Vec<f32>> = scores.iter().map(|scores| scores.logprobs.clone()).collect();
    assert_eq!(logprobs, cool.logprobs(&TokenBatch::of(&batch).sequences).unwrap());
    let sum: f64 =
        scores.iter().flat_map(|scores| &scores.entropies).map(|&entropy| f64::from(entropy)).sum();
    assert!((sum - entropy).abs() < 1e-3 * entropy, "{sum} {entropy}");
    assert!(scores.iter().zip(&batch).all(|(scores, tokens)| {
        [scores.logprobs.len(), scores.entropies.len()] == [tokens.response_tokens(); 2]
    }));
    // Scoring changes neither the learner's temperature nor its gradient.
    assert_ne!(logprobs, warm.logprobs(&TokenBatch::of(&batch).sequences).unwrap());
    assert_eq!(gradient, warm.gradient());
}

#[test]
fn order_changes_nothing_but_rounding() {
    struct Permuted(Vec<usize>);
    impl Objective for Permuted {
        fn passes(&self) -> RequiredPasses {
            Probe::PLAIN.passes()
        }

        fn evaluate(
            &self,
            sequence: usize,
            tokens: TokenStatistics<'_>,
        ) -> Result<TokenGradients, ObjectiveError> {
            Probe::PLAIN.evaluate(self.0[sequence], tokens)
        }
    }
    let batch = sequences();
    let order: Vec<usize> = (0..batch.len()).map(|index| (index * 7 + 3) % batch.len()).collect();
    let permuted: Vec<TokenSequence> = order.iter().map(|&index| batch[index].clone()).collect();
    let settings = LearnerConfig { micro_batch_tokens: 90, ..LearnerConfig::default() };
    let (mut a, mut b) = (learner(settings), learner(settings));
    let first = a.forward_backward(&TokenBatch::of(&batch), &Probe::PLAIN).unwrap();
    let second = b.forward_backward(&TokenBatch::of(&permuted), &Permuted(order)).unwrap();
    assert!((first.loss - second.loss).abs() < 1e-5);
    assert!(distance(&a.gradient(), &b.gradient()) < 1e-5);
    let mut c = learner(settings);
    c.forward_backward(&TokenBatch::of(&permuted), &Probe::PLAIN).unwrap();
    assert!(distance(&a.gradient(), &c.gradient()) > 1e-2);
}

#[test]
fn gradients_accumulate_over_calls() {
    struct Shifted(usize);
    impl Objective for Shifted {
        fn passes(&self) -> RequiredPasses {
            Probe::PLAIN.passes()
        }

        fn evaluate(
            &self,
            sequence: usize,
            tokens: TokenStatistics<'_>,
        ) -> Result<TokenGradients, ObjectiveError> {
            Probe::PLAIN.evaluate(sequence + self.0, tokens)
        }
    }
    let batch = sequences();
    let (mut a, mut b) = (learner(LearnerConfig::default()), learner(LearnerConfig::default()));
    let whole = a.forward_backward(&TokenBatch::of(&batch), &Probe::PLAIN).unwrap();
    let first = b.forward_backward(&TokenBatch::of(&batch[..4]), &Probe::PLAIN).unwrap();
    let second = b.forward_backward(&TokenBatch::of(&batch[4..]), &Shifted(4)).unwrap();
    assert!((whole.loss - first.loss - second.loss).abs() < 1e-5);
    assert!(distance(&a.gradient(), &b.gradient()) < 1e-5);
}

#[test]
fn single_precision_agrees_with_double() {
    let batch = sequences();
    let double = parameters(&config(4, 2, true), 11);
    let mut learner = learner(LearnerConfig { temperature: 0.7, ..LearnerConfig::default() });
    learner.forward_backward(&TokenBatch::of(&batch), &Probe::PLAIN).unwrap();
    let mut packing = Packing::default();
    packing.fill(batch.iter());
    let mut workspace = Workspace::new(&double.config, false);
    workspace.forward(&double, &packing, 0.7);
    let mut derivatives = Vec::new();
    for (sequence, tokens) in batch.iter().enumerate() {
        for index in 0..tokens.response_tokens() {
            let number = (sequence * 31 + index) as f32;
            derivatives.push([f64::from((number * 0.7).sin()), f64::from((number * 0.3).cos())]);
        }
    }
    // The f32 learner rounds the weights, so the f64 gradient differs by 1e-7.
    let mut gradient = vec![0.0; double.data.len()];
    whole_backward(&mut workspace, &double, &packing, &(0..batch.len()), &derivatives, &mut gradient);
    let exact: Vec<f32> = gradient.iter().map(|&g| g as f32).collect();
    assert!(distance(&exact, &learner.gradient()) < 2e-5, "{}", distance(&exact, &learner.gradient()));
}

#[test]
fn silent_sequences_are_skipped_and_change_nothing() {
    let batch = sequences();
    let settings = LearnerConfig::default();
    let silent = Probe { silent: Some(3), ..Probe::PLAIN };
    let (mut with, mut without) = (learner(settings), learner(settings));
    with.forward_backward(&TokenBatch::of(&batch), &silent).unwrap();
    let mut shorter = batch.clone();
    shorter[3] = TokenSequence::default();
    without.forward_backward(&TokenBatch::of(&shorter), &Probe::PLAIN).unwrap();
    assert!(distance(&with.gradient(), &without.gradient()) < 1e-5);
    let all = Probe { entropies: false, silent: Some(0), ..Probe::PLAIN };
    let mut nothing = learner(settings);
    nothing.forward_backward(&TokenBatch::of(&batch[..1]), &all).unwrap();
    assert!(nothing.gradient().iter().all(|&g| g == 0.0));
}

#[test]
fn every_weight_that_can_matter_gets_a_gradient() {
    for (heads, key_values, tied) in [(4, 2, true), (4, 4, false), (2, 1, false), (3, 3, true)] {
        let parameters: Parameters<f32> = parameters(&config(heads, key_values, tied), 3).cast();
        let layout = parameters.layout.clone();
        let mut learner = NativeLearner::new(parameters, LearnerConfig::default()).unwrap();
        learner.forward_backward(&TokenBatch::of(&sequences()), &Probe::PLAIN).unwrap();
        let gradient = learner.gradient();
        for tensor in &layout.tensors {
            let zero = gradient[tensor.range.clone()].iter().filter(|&&g| g == 0.0).count();
            assert_eq!(zero, 0, "{} of {} in {}", zero, tensor.range.len(), tensor.name);
        }
    }
}

#[test]
fn steps_move_weights_and_a_kept_copy_stays() {
    let mut learner = learner(LearnerConfig::default());
    let kept = learner.weights();
    let mut last = f64::INFINITY;
    for step in 1..=5 {
        let report = learner.forward_backward(&TokenBatch::of(&sequences()), &Probe::PLAIN).unwrap();
        assert!(report.loss < last, "the loss falls");
        last = report.loss;
        let report = learner.step(3e-3).unwrap();
        assert_eq!((report.step, learner.weights_version()), (step, step));
        assert!(report.grad_norm > 0.0);
        assert!(learner.gradient().iter().all(|&g| g == 0.0));
    }
    assert_ne!(kept.base.data, learner.weights().base.data);
    assert_eq!(kept.base.data, parameters(&config(4, 2, true), 11).cast::<f32>().data);
}

#[test]
fn a_restored_optimizer_continues_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("optimizer.safetensors");
    let settings = LearnerConfig::default();
    let mut learner = learner(settings);
    let advance = |learner: &mut NativeLearner| {
        learner.forward_backward(&TokenBatch::of(&sequences()), &Probe::PLAIN).unwrap();
        learner.step(1e-3).unwrap();
    };
    advance(&mut learner);
    advance(&mut learner);
    let weights = learner.weights().base;
    let tensors = &weights.layout.tensors;
    learner.optimizer_state().save(&path, tensors).unwrap();
    let state = OptimizerState::load(&path, tensors).unwrap();
    assert_eq!(&state, learner.optimizer_state());
    let mut resumed = NativeLearner::new((*weights).clone(), settings).unwrap();
    let mut fresh = NativeLearner::new((*weights).clone(), settings).unwrap();
    resumed.restore_optimizer(state).unwrap();
    assert_eq!(resumed.weights_version(), 2);
    for other in [&mut learner, &mut resumed, &mut fresh] {
        advance(other);
    }
    assert_eq!(learner.weights().base.data, resumed.weights().base.data);
    assert_ne!(learner.weights().base.data, fresh.weights().base.data, "the moments matter");
    let other = crate::ParameterLayout::new(&config(2, 1, true));
    let error = OptimizerState::load(&path, &other.tensors).unwrap_err().to_string();
    assert!(error.contains("exp_avg.model.embed_tokens.weight") && error.contains("shape"), "{error}");
    assert!(resumed.restore_optimizer(OptimizerState::new(3)).is_err());
}

#[test]
fn a_gradient_that_is_not_finite_leaves_the_weights() {
    struct Broken;
    impl Objective for Broken {
        fn evaluate(&self, _: usize, tokens: TokenStatistics<'_>) -> Result<TokenGradients, ObjectiveError> {
            Ok(TokenGradients {
                d_logprobs: vec![f32::INFINITY; tokens.logprobs.len()],
                ..Default::default()
            })
        }
    }
    let mut learner = learner(LearnerConfig::default());
    let before = learner.weights();
    learner.forward_backward(&TokenBatch::of(&sequences()), &Broken).unwrap();
    assert!(matches!(learner.step(1e-3), Err(LearnError::Gradient(_))));
    assert_eq!(learner.weights_version(), 0);
    assert_eq!(before.base.data, learner.weights().base.data);
    learner.forward_backward(&TokenBatch::of(&sequences()), &Probe::PLAIN).unwrap();
    learner.step(1e-3).unwrap();
    assert!(learner.step(f64::NAN).is_err());
}

#[test]
fn what_cannot_be_trained_on_is_named() {
    struct Short;
    impl Objective for Short {
        fn evaluate(&self, _: usize, _: TokenStatistics<'_>) -> Result<TokenGradients, ObjectiveError> {
            Ok(TokenGradients { metrics: LossMetrics::default(), ..Default::default() })
        }
    }
    let mut learner = learner(LearnerConfig::default());
    let mut error = |batch: &[TokenSequence], objective: &dyn Objective| {
        learner.forward_backward(&TokenBatch::of(batch), objective).unwrap_err().to_string()
    };
    let good = sequence(&[1, 2, 3], &[(1, 3)]);
    let foreign = error(&[good.clone(), sequence(&[1, 99], &[(1, 2)])], &Probe::PLAIN);
    assert!(foreign.contains("sequence 1: token 99 is outside the vocabulary of 23"), "{foreign}");
    assert!(error(&[sequence(&[1, 2], &[(0, 2)])], &Probe::PLAIN).contains("starts at token 0"));
    let long = error(&[sequence(&[0; 600], &[(1, 2)])], &Probe::PLAIN);
    assert!(long.contains("max_position_embeddings is 512"), "{long}");
    let short = error(&[good], &Short);
    assert!(short.contains("d_logprobs has 0 entries, 2 expected"), "{short}");
    learner.forward_backward(&TokenBatch::of(&[sequence(&[1, 2, 3], &[(1, 3)])]), &Probe::PLAIN).unwrap();
    assert!(learner.gradient().iter().any(|&g| g != 0.0));
    assert!(learner.forward_backward(&TokenBatch::of(&[sequence(&[1, 2], &[(1, 2)])]), &Short).is_err());
    assert!(learner.gradient().iter().all(|&g| g == 0.0));
    let parameters: Parameters<f32> = parameters(&config(4, 2, true), 11).cast();
    for (settings, key) in [
        (LearnerConfig { lanes: 0, ..LearnerConfig::default() }, "lanes"),
        (LearnerConfig { temperature: 0.0, ..LearnerConfig::default() }, "temperature"),
        (LearnerConfig { micro_batch_tokens: 0, ..LearnerConfig::default() }, "micro_batch_tokens"),
        (
            LearnerConfig {
                optimizer: AdamWConfig { beta1: 1.0, ..AdamWConfig::default() },
                ..LearnerConfig::default()
            },
            "optimizer.beta1",
        ),
    ] {
        let error = NativeLearner::new(parameters.clone(), settings).err().unwrap().to_string();
        assert!(error.starts_with(key), "{error}");
    }
}

#[test]
fn a_gradient_taken_out_comes_back_scaled() {
    let batch = sequences();
    let mut learner = learner(LearnerConfig::default());
    learner.forward_backward(&TokenBatch::of(&batch), &Probe::PLAIN).unwrap();
    let (before, norm) = (learner.gradient(), learner.grad_norm().unwrap());
    let taken = learner.take_gradient();
    assert_eq!(learner.grad_norm().unwrap(), 0.0);
    learner.forward_backward(&TokenBatch::of(&batch[..2]), &Probe::PLAIN).unwrap();
    assert!(learner.grad_norm().unwrap() > 0.0);
    learner.put_gradient(taken, 0.5);
    assert!(learner.gradient().iter().zip(&before).all(|(new, old)| *new == 0.5 * old));
    assert!((learner.step(0.0).unwrap().grad_norm - 0.5 * norm).abs() < 1e-6 * norm);
}

#[test]
#[expect(clippy::single_range_in_vec_init, reason = "a list of ranges is what is meant")]
fn mean_hidden_states_are_those_the_output_layer_reads() {
    let batch: Vec<(Vec<u32>, Vec<Range<usize>>)> =
        vec![(vec![3, 1, 4, 1, 5, 9], vec![0..2, 2..6]), (vec![2, 6], vec![1..2]), (vec![7], Vec::new())];
    let mut one = learner(LearnerConfig { micro_batch_tokens: 1, ..LearnerConfig::default() });
    let states = one.mean_hidden(&batch).unwrap();
    assert_eq!(states.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1, 0]);
    // The output layer, applied to a token's state, gives the log-prob of the next token.
    let weights = one.weights().base;
    let output = &weights.data[weights.layout.output.clone()];
    let logits: Vec<f64> = output
        .chunks_exact(16)
        .map(|row| row.iter().zip(&states[1][0]).map(|(&w, &x)| f64::from(w) * f64::from(x)).sum())
        .collect();
    let log_sum = logits.iter().map(|z| z.exp()).sum::<f64>().ln();
    let sequence = sequence(&[2, 6, 11], &[(2, 3)]);
    let logprob = one.logprobs(&[&sequence]).unwrap()[0][0];
    assert!((f64::from(logprob) - (logits[11] - log_sum)).abs() < 1e-5);
    let apart = one.mean_hidden(&[(batch[0].0.clone(), (2..6).map(|at| at..at + 1).collect())]).unwrap();
    for (index, &mean) in states[0][1].iter().enumerate() {
        let sum: f32 = apart[0].iter().map(|state| state[index]).sum();
        assert!((sum / 4.0 - mean).abs() < 1e-5);
    }
    assert!(one.mean_hidden(&[(vec![1, 2], vec![1..3])]).is_err());
    assert!(one.mean_hidden(&[(vec![1, 2], vec![0..2, 1..2])]).is_err());
    let error = one.mean_hidden(&[(vec![1, 23], vec![0..2])]).unwrap_err().to_string();
    assert!(error.contains("token 23"), "{error}");
}

#[test]
fn bf16_gives_its_own_bits_again_and_stays_near_f32() {
    let batch = sequences();
    let run = |settings: LearnerConfig| {
        let mut learner = learner(settings);
        learner.forward_backward(&TokenBatch::of(&batch), &Probe::PLAIN).unwrap();
        learner.gradient()
    };
    let f32_settings = LearnerConfig { micro_batch_tokens: 80, ..LearnerConfig::default() };
    let settings = LearnerConfig { compute: Compute::Bf16, ..f32_settings };
    let (reference, first, second) = (run(f32_settings), run(settings), run(settings));
    assert_eq!(first, second);
    let off = distance(&reference, &first);
    if Compute::Bf16.path() == crate::ComputePath::F32 {
        eprintln!("skipped: part of a test: this CPU multiplies no bf16 (AMX or AVX512-BF16)");
        assert_eq!(reference, first);
    } else {
        assert!(off > 1e-5 && off < 0.05, "{off}");
    }
}
