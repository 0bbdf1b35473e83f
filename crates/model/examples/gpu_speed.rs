//! Speed on an NVIDIA GPU with random weights: training steps, or decoding of many sequences.
//!
//! ```text
//! cargo run --release -p turnwise-model --features cuda --example gpu_speed -- \
//!     train shape=qwen2.5-0.5b sequences=8 length=1024 steps=10 rank=16
//! cargo run --release -p turnwise-model --features cuda --example gpu_speed -- \
//!     decode shape=qwen2.5-0.5b slots=1,8,64,256 prompt=512 new=128
//! ```
//!
//! `rank=0`, the default, trains all weights; other ranks train an adapter on all linear layers.
//! Each measurement prints one line of JSON with medians, without the first steps or rounds.
//! `benches/peer/gpu.py` runs it beside PyTorch.
#![expect(clippy::print_stdout, reason = "a program that reports")]

mod arguments;

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use turnwise_core::{
    Learner as _, Objective, ObjectiveError, Purpose, SampleRequest, Sampler as _, SamplingParams, Seed,
    TokenBatch, TokenGradients, TokenSequence, TokenStatistics, TurnSpan,
};
use turnwise_model::engine::{EngineConfig, NativeEngine, SharedWeights};
use turnwise_model::{
    Adapter, Compute, Device, LearnerConfig, LoraConfig, ModelConfig, NativeLearner, Weights,
};

use arguments::{Arguments, median, random_weights};

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

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::read();
    let device = Device::Cuda.open()?.unwrap_or_default();
    match std::env::args().nth(1).as_deref() {
        Some("train") => train(&arguments, &device),
        Some("decode") => decode(&arguments, &device),
        _ => Err("the first word says what to measure: train or decode".into()),
    }
}

fn shape(arguments: &Arguments, context: usize) -> Result<ModelConfig, Box<dyn Error>> {
    Ok(arguments.shape(context)?.ok_or("name a shape, for example shape=qwen2.5-0.5b")?)
}

fn train(arguments: &Arguments, device: &str) -> Result<(), Box<dyn Error>> {
    let (count, length) = (arguments.number("sequences", 8)?, arguments.number("length", 1024)?);
    let (steps, rank) = (arguments.number("steps", 10)?, arguments.number("rank", 0)?);
    let config = shape(arguments, length + 1)?;
    let vocabulary = config.vocab_size;
    let settings = LearnerConfig {
        device: Device::Cuda,
        micro_batch_tokens: arguments.number("micro", count * length)?,
        recompute: arguments.number("recompute", 0)? == 1,
        ..LearnerConfig::default()
    };
    let mut rng = Seed::derive(0, Purpose::World, &[]).rng();
    let batch: Vec<TokenSequence> = (0..count)
        .map(|_| TokenSequence {
            tokens: (0..=length).map(|_| rng.below(vocabulary) as u32).collect(),
            spans: vec![TurnSpan { turn: 0, start: 1, end: length + 1 }],
        })
        .collect();
    let parameters = random_weights(config);
    let weights = parameters.data.len();
    let policy = if rank == 0 {
        parameters.into()
    } else {
        let base = Arc::new(parameters);
        let lora = LoraConfig { rank, alpha: 2.0 * rank as f64, ..LoraConfig::default() };
        let adapter = Adapter::init(&base.config, &lora, Seed::derive(0, Purpose::Init, &[]))?;
        Weights::adapted(base, adapter)?
    };
    let mut learner = NativeLearner::new(policy, settings)?;
    let objective = Likelihood(1.0 / (count * length) as f32);
    let (mut seconds, mut updates, mut losses) = (Vec::new(), Vec::new(), Vec::new());
    for step in 0..steps + 3 {
        let start = Instant::now();
        let report = learner.forward_backward(&TokenBatch::of(&batch), &objective)?;
        let passed = start.elapsed().as_secs_f64();
        // The norm is read back, so a step ends when only the update is unfinished.
        learner.step(1e-4)?;
        losses.push(report.loss);
        if step >= 3 {
            let whole = start.elapsed().as_secs_f64();
            seconds.push(whole);
            updates.push(whole - passed);
        }
    }
    let seconds = median(seconds);
    println!(
        "{{\"what\": \"train\", \"device\": \"{device}\", \"parameters\": {weights}, \"rank\": {rank}, \"tokens\": {}, \
         \"seconds\": {seconds:.5}, \"update_seconds\": {:.5}, \"tokens_per_s\": {:.0}, \"first_loss\": {:.4}, \
         \"last_loss\": {:.4}}}",
        count * length,
        median(updates),
        (count * length) as f64 / seconds,
        losses.first().unwrap_or(&f64::NAN),
        losses.last().unwrap_or(&f64::NAN),
    );
    Ok(())
}

fn decode(arguments: &Arguments, device: &str) -> Result<(), Box<dyn Error>> {
    let (prompt, new) = (arguments.number("prompt", 512)?, arguments.number("new", 128)?);
    let config = shape(arguments, prompt + new + 1)?;
    let vocabulary = config.vocab_size;
    let parameters = random_weights(config);
    let count = parameters.data.len();
    let weights = SharedWeights::of(&parameters.into(), 0, Device::Cuda, Compute::F32)?;
    for slots in arguments.numbers("slots", 128)? {
        let sizes = EngineConfig { max_num_seqs: slots, max_model_len: prompt + new + 1 };
        let mut engine = NativeEngine::with_shared(&weights, sizes, None)?;
        // Prompts only, then with all tokens: the difference is decoding.
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
            "{{\"what\": \"decode\", \"device\": \"{device}\", \"parameters\": {count}, \"slots\": {slots}, \
             \"prompt\": {prompt}, \"new\": {new}, \"prompt_seconds\": {prompts:.5}, \"seconds\": {whole:.5}, \
             \"step_seconds\": {step:.6}, \"decode_tokens_per_s\": {:.0}}}",
            slots as f64 / step,
        );
    }
    Ok(())
}
