//! Compares learner and engine with the CPU path; their kernels run on the CPU.

use std::sync::Arc;

use turnwise_core::{
    Completion, ContextMask, Learner as _, MaskedContext, MaskedContextGradients, MaskedContextPass,
    MaskedContextStatistics, Objective, ObjectiveError, Purpose, RequiredPasses, SampleRequest, Sampler as _,
    SamplingParams, Seed, TokenBatch, TokenGradients, TokenSequence, TokenStatistics,
};

use super::Trained;
use super::emulator::{downloaded, emulator};
use super::memory::Bf16;
use crate::cpu::decoder::tests::{batch, config, parameters, sequence};
use crate::engine::{EngineConfig, NativeEngine};
use crate::testing::{Probe, largest_difference as apart, relative_distance as distance};
use crate::{
    Adapter, Family, LearnerConfig, LoraConfig, ModelConfig, NativeLearner, Parameters, RopeScaling, Weights,
};

mod adapters;
mod engine;
mod masked_contexts;

const VOCABULARY: usize = 67;

fn families() -> [ModelConfig; 4] {
    let base = ModelConfig {
        vocab_size: VOCABULARY,
        hidden_size: 64,
        intermediate_size: 48,
        head_dim: 16,
        ..config(4, 2, true)
    };
    let rope_scaling = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 16,
    };
    let llama = ModelConfig { model_type: Family::Llama, rope_scaling, ..base.clone() };
    [
        base.clone(),
        ModelConfig { tie_word_embeddings: false, num_key_value_heads: 4, ..base.clone() },
        ModelConfig { model_type: Family::Qwen3, head_dim: 32, attention_bias: true, ..base },
        ModelConfig { attention_bias: true, mlp_bias: true, ..llama },
    ]
}

/// Returns random weights that are exact in bfloat16.
fn weights(config: &ModelConfig, seed: u64) -> Parameters<f32> {
    let mut weights: Parameters<f32> = parameters(config, seed).cast();
    for tensor in &weights.layout.tensors {
        let factor = if tensor.shape.len() > 1 { 0.4 } else { 1.0 };
        for value in &mut weights.data[tensor.range.clone()] {
            *value = Bf16::from_f32(*value * factor).to_f32();
        }
    }
    weights
}

fn rounded(weights: &Weights) -> Weights {
    let mut weights = weights.clone();
    let data = match &mut weights.adapter {
        Some(adapter) => &mut Arc::make_mut(adapter).data,
        None => &mut Arc::make_mut(&mut weights.base).data,
    };
    for value in data {
        *value = Bf16::from_f32(*value).to_f32();
    }
    weights
}

fn settings() -> LearnerConfig {
    LearnerConfig { lanes: 1, micro_batch_tokens: 100_000, ..LearnerConfig::default() }
}

fn both<W: Clone + std::convert::Into<Weights>>(
    weights: &W,
    settings: LearnerConfig,
) -> Option<[NativeLearner; 2]> {
    let driver = emulator()?;
    let weights = weights.clone().into();
    let trained = Trained::on(driver, &weights).unwrap();
    let device = NativeLearner::on_device(weights.clone(), settings, trained);
    Some([NativeLearner::new(weights, settings).unwrap(), device])
}

/// Tolerance in nats for two bfloat16 layers; another model's log-probs differ tens of times more.
const LOGPROBS: f32 = 0.05;
const GRADIENT: f64 = 0.03;
const TENSOR: f64 = 0.08;

struct Values;

impl Objective for Values {
    fn evaluate(
        &self,
        sequence: usize,
        tokens: TokenStatistics<'_>,
    ) -> Result<TokenGradients, ObjectiveError> {
        let off = |value: f32| value - (sequence as f32 - 1.5);
        Ok(TokenGradients {
            loss: tokens.logprobs.iter().map(|&v| f64::from(off(v)).powi(2)).sum(),
            d_logprobs: tokens.logprobs.iter().map(|&v| 2.0 * off(v)).collect(),
            ..TokenGradients::default()
        })
    }
}

fn request(session: u64, prompt: &[u32], params: &SamplingParams) -> SampleRequest {
    let seed = Seed::derive(1, Purpose::Rollout, &[session, prompt.len() as u64]);
    SampleRequest { session, prompt: prompt.to_vec(), params: params.clone(), seed }
}

fn play(engine: &mut NativeEngine, params: &SamplingParams) -> Vec<(Vec<u32>, Completion)> {
    let mut answers = Vec::new();
    let mut prompts: Vec<Vec<u32>> = (0..5u32)
        .map(|session| (0..24).map(|i| i * 5 % 61).chain((0..=session).map(|i| i * 11 % 67)).collect())
        .collect();
    prompts.push((0..70).map(|i| i * 13 % 67).collect());
    for _ in 0..2 {
        let asked: Vec<(u64, usize)> = prompts
            .iter()
            .enumerate()
            .map(|(session, prompt)| {
                let request = request(session as u64, prompt, params);
                (engine.submit(request).unwrap(), session)
            })
            .collect();
        let mut missing = asked.len();
        while missing > 0 {
            for completion in engine.poll().unwrap() {
                missing -= 1;
                let (_, session) = asked.iter().find(|(id, _)| *id == completion.request).unwrap();
                answers.push((prompts[*session].clone(), completion.clone()));
                prompts[*session].extend(&completion.tokens);
                prompts[*session].push(3);
            }
        }
    }
    answers
}

fn scored(learner: &mut NativeLearner, answers: &[(Vec<u32>, Completion)]) -> Vec<Vec<f32>> {
    let batch: Vec<TokenSequence> = answers
        .iter()
        .map(|(prompt, answer)| {
            let tokens = [prompt.clone(), answer.tokens.clone()].concat();
            sequence(&tokens, &[(prompt.len(), tokens.len())])
        })
        .collect();
    learner.logprobs(&TokenBatch::of(&batch).sequences).unwrap()
}

#[test]
fn the_device_computes_what_the_cpu_does() {
    for config in families() {
        let weights = weights(&config, 3);
        let Some([mut host, mut device]) = both(&weights, settings()) else { return };
        let batch = batch(VOCABULARY, 5);
        let (expected, found) = (
            host.logprobs(&TokenBatch::of(&batch).sequences).unwrap(),
            device.logprobs(&TokenBatch::of(&batch).sequences).unwrap(),
        );
        assert!(apart(&found, &expected) < LOGPROBS, "{}: {}", config.model_type, apart(&found, &expected));
        let (a, b) = (
            host.forward_backward(&TokenBatch::of(&batch), &Probe::PLAIN).unwrap(),
            device.forward_backward(&TokenBatch::of(&batch), &Probe::PLAIN).unwrap(),
        );
        assert!((a.loss - b.loss).abs() < 0.02 * a.loss.abs().max(1.0), "{} {}", a.loss, b.loss);
        assert_eq!(a.total_tokens, b.total_tokens);
        let (expected, found) = (host.gradient(), device.gradient());
        let whole = distance(&found, &expected);
        assert!(whole < GRADIENT, "{}: {whole}", config.model_type);
        // Each tensor on its own scale, so that small ones count.
        for tensor in &weights.layout.tensors {
            let off = distance(&found[tensor.range.clone()], &expected[tensor.range.clone()]);
            assert!(off < TENSOR, "{} {}: {off}", config.model_type, tensor.name);
            // No gradient is zero, so a missing one is noticed. Rotation gives even key biases one.
            let dropped = vec![0.0; tensor.range.len()];
            assert!(distance(&dropped, &expected[tensor.range.clone()]) > 10.0 * TENSOR, "{}", tensor.name);
        }
        assert!((device.grad_norm().unwrap() / host.grad_norm().unwrap() - 1.0).abs() < 0.01);
        let Some([_, mut other]) = both(&self::weights(&config, 4), settings()) else { return };
        other.forward_backward(&TokenBatch::of(&batch), &Probe::PLAIN).unwrap();
        assert!(
            apart(
                &other.logprobs(&TokenBatch::of(&batch).sequences).unwrap(),
                &host.logprobs(&TokenBatch::of(&batch).sequences).unwrap()
            ) > 10.0 * LOGPROBS
        );
        assert!(distance(&other.gradient(), &expected) > 10.0 * GRADIENT);
    }
}

#[test]
fn cuts_recomputation_and_silent_sequences_change_nothing_but_rounding() {
    let weights = weights(&families()[2], 7);
    let batch = [batch(VOCABULARY, 1), batch(VOCABULARY, 2)].concat();
    let run = |settings: LearnerConfig, probe: &Probe| {
        let [_, mut device] = both(&weights, settings)?;
        device.forward_backward(&TokenBatch::of(&batch), probe).unwrap();
        Some(device.gradient())
    };
    let Some(whole) = run(settings(), &Probe::PLAIN) else { return };
    assert_eq!(run(settings(), &Probe::PLAIN).unwrap(), whole, "the same bits every time");
    let recomputed = run(LearnerConfig { recompute: true, ..settings() }, &Probe::PLAIN).unwrap();
    assert_eq!(recomputed, whole, "recomputation gives the same bits");
    let cut = run(LearnerConfig { micro_batch_tokens: 80, ..settings() }, &Probe::PLAIN).unwrap();
    assert!(distance(&cut, &whole) < 5e-3, "{}", distance(&cut, &whole));
    // A sequence without a gradient splits the batch into two runs.
    let silent = Probe { silent: Some(1), ..Probe::PLAIN };
    let Some([mut host, _]) = both(&weights, settings()) else { return };
    host.forward_backward(&TokenBatch::of(&batch), &silent).unwrap();
    for recompute in [false, true] {
        let found = run(LearnerConfig { recompute, ..settings() }, &silent).unwrap();
        assert!(distance(&found, &host.gradient()) < GRADIENT, "{}", distance(&found, &host.gradient()));
    }
    assert!(distance(&whole, &host.gradient()) > GRADIENT);
}

#[test]
fn updates_moments_and_checkpoints_are_the_cpus() {
    let weights = weights(&families()[0], 11);
    let Some([mut host, mut device]) = both(&weights, settings()) else { return };
    let batch = batch(VOCABULARY, 9);
    for learner in [&mut host, &mut device] {
        learner.forward_backward(&TokenBatch::of(&batch), &Probe::PLAIN).unwrap();
    }
    let gradient = device.gradient();
    let norm = device.grad_norm().unwrap();
    let mut state = crate::OptimizerState::new(weights.data.len());
    let mut expected = weights.data.clone();
    state.update(&settings().optimizer, &weights.layout.tensors, 1e-3, norm, &gradient, &mut expected);
    let kept = device.weights();
    let report = device.step(1e-3).unwrap();
    assert_eq!((report.step, report.grad_norm), (1, norm));
    assert_eq!(*kept.base, weights, "a kept copy stays");
    device.fetch().unwrap();
    assert!(distance(&device.weights().base.data, &expected) < 1e-6);
    assert!(distance(&device.optimizer_state().first, &state.first) < 1e-6);
    assert!(distance(&device.optimizer_state().second, &state.second) < 1e-6);
    assert!(device.gradient().iter().all(|&g| g == 0.0));
    assert_eq!(device.weights_version(), 1);
    let after = device.logprobs(&TokenBatch::of(&batch).sequences).unwrap();
    let updated = (*device.weights().base).clone();
    let mut again = NativeLearner::new(rounded(&device.weights()), settings()).unwrap();
    assert!(apart(&after, &again.logprobs(&TokenBatch::of(&batch).sequences).unwrap()) < LOGPROBS);

    let Some([_, mut resumed]) = both(&updated, settings()) else { return };
    resumed.restore_optimizer(device.optimizer_state().clone()).unwrap();
    for learner in [&mut device, &mut resumed] {
        learner.forward_backward(&TokenBatch::of(&batch), &Probe::PLAIN).unwrap();
        learner.step(1e-3).unwrap();
    }
    assert_eq!(device.weights(), resumed.weights());
    assert_eq!(device.optimizer_state(), resumed.optimizer_state());
    assert!(distance(&device.weights().base.data, &updated.data) > 1e-4);
}

#[test]
fn updates_and_passes_download_no_weights() {
    let weights = weights(&families()[0], 11);
    let Some([_, mut device]) = both(&weights, settings()) else { return };
    let batch = batch(VOCABULARY, 9);
    let all = 4 * weights.data.len();
    let before = downloaded();
    for _ in 0..3 {
        device.forward_backward(&TokenBatch::of(&batch), &Probe::PLAIN).unwrap();
        device.step(1e-3).unwrap();
        device.logprobs(&TokenBatch::of(&batch).sequences).unwrap();
        drop(device.engine_weights().unwrap());
    }
    assert!(downloaded() - before < all / 4, "{} of {all} bytes", downloaded() - before);
    device.fetch().unwrap();
    assert!(downloaded() - before >= 3 * all);
}

#[test]
fn gradients_are_taken_out_and_put_back_and_bad_ones_refused() {
    let weights = weights(&families()[0], 2);
    let Some([_, mut device]) = both(&weights, settings()) else { return };
    let batch = batch(VOCABULARY, 9);
    device.forward_backward(&TokenBatch::of(&batch), &Probe::PLAIN).unwrap();
    let (before, norm) = (device.gradient(), device.grad_norm().unwrap());
    let taken = device.take_gradient();
    assert_eq!(device.grad_norm().unwrap(), 0.0);
    device.forward_backward(&TokenBatch::of(&batch[..1]), &Probe::PLAIN).unwrap();
    assert!(device.grad_norm().unwrap() > 0.0);
    device.put_gradient(taken, 0.5);
    assert!(device.gradient().iter().zip(&before).all(|(new, old)| *new == 0.5 * old));
    assert!((device.grad_norm().unwrap() / norm - 0.5).abs() < 1e-6);
    let taken = device.take_gradient();
    device.put_gradient(taken, f64::NAN);
    assert!(matches!(device.step(1e-3), Err(turnwise_core::LearnError::Gradient(_))));
    assert_eq!(*device.weights().base, weights);
    device.forward_backward(&TokenBatch::of(&batch), &Probe::PLAIN).unwrap();
    device.step(1e-3).unwrap();
}

#[test]
fn hidden_states_and_critics_are_the_cpus() {
    let weights = weights(&families()[0], 3);
    let Some([mut host, mut device]) = both(&weights, settings()) else { return };
    let asked: Vec<(Vec<u32>, Vec<std::ops::Range<usize>>)> =
        batch(VOCABULARY, 5).into_iter().map(|sequence| (sequence.tokens, vec![0..1, 1..2])).collect();
    let (expected, found) = (host.mean_hidden(&asked).unwrap(), device.mean_hidden(&asked).unwrap());
    for (a, b) in found.iter().flatten().zip(expected.iter().flatten()) {
        assert!(distance(a, b) < 0.02, "{}", distance(a, b));
    }

    let mut critic = weights.to_critic();
    let range = critic.layout.value.clone().unwrap();
    let head: Vec<f32> = (0..range.len()).map(|index| (index as f32 * 0.3).sin() * 0.2).collect();
    critic.data[range.clone()].copy_from_slice(&head);
    let Some([mut host, mut device]) = both(&critic, settings()) else { return };
    let batch = batch(VOCABULARY, 5);
    let (expected, found) = (
        host.logprobs(&TokenBatch::of(&batch).sequences).unwrap(),
        device.logprobs(&TokenBatch::of(&batch).sequences).unwrap(),
    );
    assert!(apart(&found, &expected) < LOGPROBS);
    for learner in [&mut host, &mut device] {
        learner.forward_backward(&TokenBatch::of(&batch), &Values).unwrap();
    }
    let off = distance(&device.gradient(), &host.gradient());
    assert!(off < GRADIENT, "{off}");
    let off = distance(&device.gradient()[range.clone()], &host.gradient()[range]);
    assert!(off < GRADIENT, "{off}");
    device.step(1e-2).unwrap();
    let moved = device.logprobs(&TokenBatch::of(&batch).sequences).unwrap();
    let mut host = NativeLearner::new(rounded(&device.weights()), settings()).unwrap();
    assert!(apart(&moved, &host.logprobs(&TokenBatch::of(&batch).sequences).unwrap()) < LOGPROBS);
    assert!(apart(&moved, &found) > 2.0 * LOGPROBS);
}

#[test]
fn shapes_that_the_kernels_cannot_run_are_refused() {
    let Some(driver) = emulator() else { return };
    let base = &families()[0];
    for (config, expected) in [
        (ModelConfig { hidden_size: 72, ..base.clone() }, "hidden_size"),
        (ModelConfig { intermediate_size: 44, ..base.clone() }, "intermediate_size"),
        (ModelConfig { head_dim: 24, ..base.clone() }, "head_dim"),
        (ModelConfig { head_dim: 160, ..base.clone() }, "head_dim"),
        (
            ModelConfig { num_attention_heads: 34, num_key_value_heads: 2, ..base.clone() },
            "num_key_value_heads",
        ),
    ] {
        let error = Trained::on(Arc::clone(&driver), &Parameters::zeros(config).into()).err().unwrap();
        assert!(error.to_string().contains(expected), "{error}");
    }
}
