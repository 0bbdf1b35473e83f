//! Compares the CUDA backend on a device with the CPU path. Without a device, the tests print this
//! and end.
//!
//! `TURNWISE_CUDA_SMALL=1` runs one small model on short sequences, for compute-sanitizer, which
//! slows kernels a hundredfold. Each test prints the differences it measured.
//!
//! Tolerances: the device reads numbers with eight significant bits in products. After a few
//! layers, log-probs agree to a few hundredths of a nat and gradients to a few per cent of their
//! norm. The update itself is f32 on both sides.
#![cfg(feature = "cuda")]
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test may fail loudly, and says what it skips"
)]

use turnwise_core::{
    Completion, Learner as _, Purpose, SampleRequest, Sampler as _, SamplingParams, Seed, TokenBatch,
    TokenSequence, TurnSpan,
};
use turnwise_model::cuda::{CudaError, describe};
use turnwise_model::engine::{EngineConfig, NativeEngine};
use turnwise_model::testing::{Probe, largest_difference as apart, relative_distance as distance};
use turnwise_model::{Device, Family, LearnerConfig, ModelConfig, NativeLearner, Parameters};

/// Maximum difference of a log-prob, in nats.
const LOGPROBS: f32 = 0.08;
/// Maximum norm of a gradient's difference, relative to the gradient's norm.
const GRADIENT: f64 = 0.05;

/// Returns true if there is a device, and prints a message otherwise. With a device and driver,
/// everything else must work.
fn device() -> bool {
    match describe() {
        Ok(device) => {
            eprintln!("on {device}");
            true
        }
        Err(error @ CudaError::Device(_)) => no_device(&error),
        Err(error @ CudaError::Library { library, .. }) if library.contains("driver") => no_device(&error),
        Err(error) => panic!("{error}"),
    }
}

fn no_device(error: &CudaError) -> bool {
    eprintln!("skipped: no device to compare with the CPU ({error})");
    false
}

fn small() -> bool {
    std::env::var_os("TURNWISE_CUDA_SMALL").is_some()
}

/// Returns models with heads of 64 and of 128, several attention tiles, normed heads, and
/// vocabularies of less than one choice chunk and of several.
fn models() -> Vec<ModelConfig> {
    let base = ModelConfig {
        vocab_size: 1003,
        hidden_size: 256,
        intermediate_size: 512,
        num_hidden_layers: 3,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 64,
        max_position_embeddings: 512,
        tie_word_embeddings: true,
        ..ModelConfig::default()
    };
    if small() {
        return vec![ModelConfig { num_hidden_layers: 1, num_attention_heads: 2, hidden_size: 128, ..base }];
    }
    vec![
        base.clone(),
        ModelConfig { model_type: Family::Qwen3, head_dim: 128, num_key_value_heads: 1, ..base.clone() },
        ModelConfig { model_type: Family::Llama, tie_word_embeddings: false, ..base.clone() },
        ModelConfig { vocab_size: 9001, num_hidden_layers: 1, ..base },
    ]
}

/// Returns weights large enough that every part matters, rounded to bfloat16. Norms stay at 1: at
/// 1.5, Qwen3's head norms scale scores by 2.25, and rounding then moves a gradient by 4 % (on a
/// GPU and emulated alike).
fn weights(config: &ModelConfig, seed: u64) -> Parameters<f32> {
    let mut weights = Parameters::init(config.clone(), Seed::derive(seed, Purpose::Init, &[])).unwrap();
    for tensor in weights.layout.tensors.iter().filter(|tensor| tensor.shape.len() > 1) {
        for value in &mut weights.data[tensor.range.clone()] {
            *value = f32::from_bits((*value * 1.5).to_bits() & 0xffff_0000);
        }
    }
    weights
}

fn batch(vocabulary: usize) -> Vec<TokenSequence> {
    let mut rng = Seed::derive(1, Purpose::World, &[]).rng();
    let lengths: &[usize] = if small() { &[70, 5] } else { &[300, 5, 64, 130] };
    lengths
        .iter()
        .copied()
        .map(|length| TokenSequence {
            tokens: (0..length).map(|_| rng.below(vocabulary) as u32).collect(),
            spans: vec![
                TurnSpan { turn: 0, start: 1, end: length / 2 },
                TurnSpan { turn: 1, start: length / 2, end: length },
            ],
        })
        .collect()
}

fn learners(weights: &Parameters<f32>) -> [NativeLearner; 2] {
    let settings = LearnerConfig { micro_batch_tokens: 400, lanes: 1, ..LearnerConfig::default() };
    [Device::Cpu, Device::Cuda]
        .map(|device| NativeLearner::new(weights.clone(), LearnerConfig { device, ..settings }).unwrap())
}

#[test]
fn the_device_trains_as_the_cpu_does() {
    if !device() {
        return;
    }
    for config in models() {
        let weights = weights(&config, 3);
        let [mut host, mut device] = learners(&weights);
        let batch = batch(config.vocab_size);
        let (expected, found) = (
            host.logprobs(&TokenBatch::of(&batch).sequences).unwrap(),
            device.logprobs(&TokenBatch::of(&batch).sequences).unwrap(),
        );
        let off = apart(&found, &expected);
        eprintln!("{}: log-probabilities {off:.4} apart", config.model_type);
        assert!(off < LOGPROBS, "{}: log-probabilities {off} apart", config.model_type);
        let [a, b] = [&mut host, &mut device]
            .map(|learner| learner.forward_backward(&TokenBatch::of(&batch), &Probe::PLAIN).unwrap());
        assert!((a.loss - b.loss).abs() < 0.03 * a.loss.abs().max(1.0), "{} {}", a.loss, b.loss);
        let off = distance(&device.gradient(), &host.gradient());
        eprintln!("{}: loss {} and {}, gradients {off:.5} apart", config.model_type, a.loss, b.loss);
        assert!(off < GRADIENT, "{}: gradients {off} apart", config.model_type);
        let [mut other, _] = learners(&self::weights(&config, 4));
        assert!(apart(&other.logprobs(&TokenBatch::of(&batch).sequences).unwrap(), &found) > 4.0 * LOGPROBS);
        other.forward_backward(&TokenBatch::of(&batch), &Probe::PLAIN).unwrap();
        assert!(distance(&device.gradient(), &other.gradient()) > 4.0 * GRADIENT);
        let again = device.gradient();
        device.clear_gradient();
        device.forward_backward(&TokenBatch::of(&batch), &Probe::PLAIN).unwrap();
        assert_eq!(device.gradient(), again);
        for learner in [&mut host, &mut device] {
            learner.step(1e-3).unwrap();
        }
        device.fetch().unwrap();
        // Adam's first update is the gradient's sign, except for small gradients.
        let (moved, expected) = (device.weights(), host.weights());
        let moves =
            |new: &[f32]| new.iter().zip(&weights.data).map(|(new, old)| new - old).collect::<Vec<f32>>();
        let off = distance(&moves(&moved.base.data), &moves(&expected.base.data));
        eprintln!("{}: updates {off:.4} apart", config.model_type);
        assert!(off < 0.4, "{}: updates {off} apart", config.model_type);
        assert!(
            apart(
                &device.logprobs(&TokenBatch::of(&batch).sequences).unwrap(),
                &host.logprobs(&TokenBatch::of(&batch).sequences).unwrap()
            ) < 2.0 * LOGPROBS
        );
    }
}

/// Returns prompts with their answers as sequences, and the sampler's log-probs.
fn said(answers: &[(Vec<u32>, Completion)]) -> (Vec<TokenSequence>, Vec<Vec<f32>>) {
    let sequence = |(prompt, answer): &(Vec<u32>, Completion)| {
        let tokens = [prompt.clone(), answer.tokens.clone()].concat();
        let end = tokens.len();
        TokenSequence { tokens, spans: vec![TurnSpan { turn: 0, start: prompt.len(), end }] }
    };
    (
        answers.iter().map(sequence).collect(),
        answers.iter().map(|(_, answer)| answer.logprobs.clone()).collect(),
    )
}

#[test]
fn the_device_samples_what_its_learner_says() {
    if !device() {
        return;
    }
    for config in models() {
        let weights = weights(&config, 5);
        let [mut host, mut device] = learners(&weights);
        let sizes = EngineConfig { max_num_seqs: 5, max_model_len: 400 };
        let greedy = SamplingParams {
            temperature: 0.0,
            max_tokens: if small() { 6 } else { 40 },
            ..SamplingParams::default()
        };
        let answers = |learner: &NativeLearner, params: &SamplingParams| {
            let weights = learner.engine_weights().unwrap();
            let mut engine = NativeEngine::with_shared(&weights, sizes, None).unwrap();
            let mut rng = Seed::derive(2, Purpose::World, &[]).rng();
            let lengths: &[usize] = if small() { &[3, 70, 40] } else { &[3, 70, 129, 300, 40, 8, 90] };
            let prompts: Vec<Vec<u32>> = lengths
                .iter()
                .copied()
                .map(|length| (0..length).map(|_| rng.below(config.vocab_size) as u32).collect())
                .collect();
            for (session, prompt) in prompts.iter().enumerate() {
                let seed = Seed::derive(3, Purpose::Rollout, &[session as u64]);
                let request = SampleRequest {
                    session: session as u64,
                    prompt: prompt.clone(),
                    params: params.clone(),
                    seed,
                };
                engine.submit(request).unwrap();
            }
            let mut done = Vec::new();
            loop {
                let more = engine.poll().unwrap();
                if more.is_empty() {
                    break;
                }
                done.extend(more);
            }
            done.sort_by_key(|completion| completion.request);
            prompts.into_iter().zip(done).collect::<Vec<_>>()
        };
        let found = answers(&device, &greedy);
        assert_eq!(found, answers(&device, &greedy), "the same bits every time");
        let (batch, recorded) = said(&found);
        let own = apart(&recorded, &device.logprobs(&TokenBatch::of(&batch).sequences).unwrap());
        eprintln!("{}: sampler and learner {own:.4} apart", config.model_type);
        assert!(own < LOGPROBS, "{}: sampler and learner {own} apart", config.model_type);
        assert!(apart(&recorded, &host.logprobs(&TokenBatch::of(&batch).sequences).unwrap()) < LOGPROBS);
        // Greedy answers start equal; they may diverge where two tokens are almost equally likely.
        let expected = answers(&host, &greedy);
        let pairs = found.iter().zip(&expected);
        let alike =
            pairs.map(|(a, b)| a.1.tokens.iter().zip(&b.1.tokens).take_while(|(a, b)| a == b).count());
        let total: usize = alike.sum();
        let all = found.len() * greedy.max_tokens;
        eprintln!("{}: {total} of {all} greedy tokens alike", config.model_type);
        assert!(2 * total > all, "{}: {total} of {all} greedy tokens alike", config.model_type);
        // Draws from all tokens, and with top-k and top-p.
        for (temperature, top_p, top_k) in [(1.0, 1.0, 0), (0.8, 0.9, 20)] {
            let params = SamplingParams { temperature, top_p, top_k, ..greedy.clone() };
            let drawn = answers(&device, &params);
            assert_eq!(drawn, answers(&device, &params), "the same bits every time");
            assert_ne!(drawn, found);
            let (batch, recorded) = said(&drawn);
            let own = device.score(&TokenBatch::of(&batch).sequences, f64::from(temperature)).unwrap();
            let own: Vec<Vec<f32>> = own.into_iter().map(|scores| scores.logprobs).collect();
            assert!(apart(&recorded, &own) < LOGPROBS, "{}, temperature {temperature}", config.model_type);
        }
    }
}

#[test]
fn without_a_device_the_error_says_what_to_do() {
    let Err(error) = describe() else { return };
    let text = error.to_string();
    assert!(text.contains("policy.device = \"cpu\"") || text.contains("TURNWISE_CUDA_PATH"), "{text}");
    let config = models()[0].clone();
    let settings = LearnerConfig { device: Device::Cuda, ..LearnerConfig::default() };
    let error = NativeLearner::new(Parameters::zeros(config), settings).err().unwrap().to_string();
    assert!(error.contains("policy.device"), "{error}");
}
