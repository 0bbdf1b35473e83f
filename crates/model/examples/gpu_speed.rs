//! Speed on an NVIDIA GPU, with random weights: training steps, or decoding of many sequences.
//!
//! ```text
//! cargo run --release -p turnwise-model --features cuda --example gpu_speed -- train hidden=896 layers=24 \
//!     heads=14 kv=2 ffn=4864 vocab=151936 sequences=8 length=1024 steps=10
//! cargo run --release -p turnwise-model --features cuda --example gpu_speed -- decode slots=128 prompt=512 new=128
//! ```
//!
//! Prints one line of JSON. Medians of steps (or of decoding steps after the prompts), the first ones not
//! counted. `benches/peer/gpu.py` runs it beside PyTorch.
#![expect(clippy::print_stdout, reason = "a program that reports")]

use std::collections::HashMap;
use std::error::Error;
use std::time::Instant;

use turnwise_core::{
    Learner as _, Objective, ObjectiveError, Purpose, SampleRequest, Sampler as _, SamplingParams, Seed,
    TokenGradients, TokenSequence, TokenStatistics, TurnSpan,
};
use turnwise_model::engine::{EngineConfig, NativeEngine, SharedWeights};
use turnwise_model::{Compute, Device, LearnerConfig, ModelConfig, NativeLearner, Parameters};

struct Likelihood(f32);

impl Objective for Likelihood {
    fn evaluate(&self, _: usize, tokens: TokenStatistics<'_>) -> Result<TokenGradients, ObjectiveError> {
        let sum: f64 = tokens.logprobs.iter().map(|&logprob| f64::from(logprob)).sum();
        Ok(TokenGradients {
            loss: -sum * f64::from(self.0),
            d_logprobs: vec![-self.0; tokens.logprobs.len()],
            ..TokenGradients::default()
        })
    }
}

/// Numbers of the command line with the values of Qwen2.5-0.5B in the place of what is missing.
struct Arguments(HashMap<String, usize>);

impl Arguments {
    fn read(arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut numbers = HashMap::new();
        for argument in arguments {
            let (key, value) =
                argument.split_once('=').ok_or_else(|| format!("`{argument}`: expected key=number"))?;
            let known = [
                "hidden",
                "layers",
                "heads",
                "kv",
                "ffn",
                "vocab",
                "sequences",
                "length",
                "steps",
                "recompute",
                "slots",
                "prompt",
                "new",
            ];
            if !known.contains(&key) {
                return Err(format!("`{key}` is unknown; there are {known:?}").into());
            }
            numbers.insert(key.to_owned(), value.parse()?);
        }
        Ok(Self(numbers))
    }

    fn get(&self, key: &str, default: usize) -> usize {
        self.0.get(key).copied().unwrap_or(default)
    }

    fn model(&self, longest: usize) -> ModelConfig {
        let (hidden, heads) = (self.get("hidden", 896), self.get("heads", 14));
        ModelConfig {
            vocab_size: self.get("vocab", 151_936),
            hidden_size: hidden,
            intermediate_size: self.get("ffn", 4864),
            num_hidden_layers: self.get("layers", 24),
            num_attention_heads: heads,
            num_key_value_heads: self.get("kv", 2),
            head_dim: hidden / heads,
            max_position_embeddings: longest,
            rope_theta: 1e6,
            tie_word_embeddings: true,
            ..ModelConfig::default()
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().unwrap_or_default();
    let arguments = Arguments::read(arguments)?;
    let device = Device::Cuda.open()?.unwrap_or_default();
    match mode.as_str() {
        "train" => train(&arguments, &device),
        "decode" => decode(&arguments, &device),
        _ => Err("the first word says what to measure: train or decode".into()),
    }
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied().unwrap_or(f64::NAN)
}

fn train(arguments: &Arguments, device: &str) -> Result<(), Box<dyn Error>> {
    let (count, length) = (arguments.get("sequences", 8), arguments.get("length", 1024));
    let steps = arguments.get("steps", 10);
    let config = arguments.model(length + 1);
    let vocabulary = config.vocab_size;
    let settings = LearnerConfig {
        device: Device::Cuda,
        micro_batch_tokens: count * length,
        recompute: arguments.get("recompute", 0) == 1,
        ..LearnerConfig::default()
    };
    let mut rng = Seed::derive(0, Purpose::World, &[]).rng();
    let batch: Vec<TokenSequence> = (0..count)
        .map(|_| TokenSequence {
            tokens: (0..=length).map(|_| rng.below(vocabulary) as u32).collect(),
            spans: vec![TurnSpan { turn: 0, start: 1, end: length + 1 }],
        })
        .collect();
    let parameters = Parameters::init(config, Seed::derive(0, Purpose::Init, &[]))?;
    let weights = parameters.data.len();
    let mut learner = NativeLearner::new(parameters, settings)?;
    let objective = Likelihood(1.0 / (count * length) as f32);
    let (mut seconds, mut losses) = (Vec::new(), Vec::new());
    for step in 0..steps + 3 {
        let start = Instant::now();
        let report = learner.forward_backward(&batch, &objective)?;
        // The norm is read back, so a step ends when the device has done all but the update.
        learner.step(1e-4)?;
        losses.push(report.loss);
        if step >= 3 {
            seconds.push(start.elapsed().as_secs_f64());
        }
    }
    let seconds = median(seconds);
    println!(
        "{{\"what\": \"train\", \"device\": \"{device}\", \"parameters\": {weights}, \"tokens\": {}, \"seconds\": {seconds:.5}, \
         \"tokens_per_s\": {:.0}, \"first_loss\": {:.4}, \"last_loss\": {:.4}}}",
        count * length,
        (count * length) as f64 / seconds,
        losses.first().unwrap_or(&f64::NAN),
        losses.last().unwrap_or(&f64::NAN),
    );
    Ok(())
}

fn decode(arguments: &Arguments, device: &str) -> Result<(), Box<dyn Error>> {
    let slots = arguments.get("slots", 128);
    let (prompt, new) = (arguments.get("prompt", 512), arguments.get("new", 128));
    let config = arguments.model(prompt + new + 1);
    let vocabulary = config.vocab_size;
    let parameters = Parameters::init(config, Seed::derive(0, Purpose::Init, &[]))?;
    let count = parameters.data.len();
    let weights = SharedWeights::of(&parameters.into(), 0, Device::Cuda, Compute::F32)?;
    let sizes = EngineConfig { max_num_seqs: slots, max_context: prompt + new + 1 };
    let mut engine = NativeEngine::with_shared(&weights, sizes, None)?;
    // The prompts alone, then with all tokens: the difference is decoding.
    let mut run = |new: usize, round: u64| -> Result<f64, Box<dyn Error>> {
        for session in 0..slots as u64 {
            engine.end_session(session);
            let mut rng = Seed::derive(round, Purpose::World, &[session]).rng();
            engine.submit(SampleRequest {
                session,
                prompt: (0..prompt).map(|_| rng.below(vocabulary) as u32).collect(),
                params: SamplingParams { max_tokens: new, ..SamplingParams::default() },
                seed: Seed::derive(round, Purpose::Rollout, &[session]),
            })?;
        }
        let start = Instant::now();
        while !engine.poll()?.is_empty() {}
        Ok(start.elapsed().as_secs_f64())
    };
    run(new, 0)?;
    let prompts = median((1..4).map(|round| run(1, round)).collect::<Result<_, _>>()?);
    let whole = median((4..7).map(|round| run(new, round)).collect::<Result<_, _>>()?);
    let step = (whole - prompts) / (new - 1).max(1) as f64;
    println!(
        "{{\"what\": \"decode\", \"device\": \"{device}\", \"parameters\": {}, \"slots\": {slots}, \"prompt\": {prompt}, \
         \"new\": {new}, \"prompt_seconds\": {prompts:.5}, \"seconds\": {whole:.5}, \"step_seconds\": {step:.6}, \
         \"decode_tokens_per_s\": {:.0}}}",
        count,
        slots as f64 / step,
    );
    Ok(())
}
