//! Cost of an adapter: a learner's step, and packing for the engine, with all weights and with an
//! adapter.
//!
//! ```text
//! cargo run --release -p turnwise-model --example lora_cost -- \
//!     hidden=256 layers=6 heads=4 kv=2 ffn=704 vocab=2048 rank=32 sequences=16 length=512 lanes=2 steps=5
//! ```

mod arguments;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use turnwise_core::{
    Learner, Objective, ObjectiveError, Purpose, Seed, TokenBatch, TokenGradients, TokenSequence,
    TokenStatistics, TurnSpan,
};
use turnwise_model::engine::EngineWeights;
use turnwise_model::{
    Adapter, Compute, LearnerConfig, LoraConfig, ModelConfig, NativeLearner, Parameters, Weights,
};

use arguments::Arguments;

struct Likelihood(f32);

impl Objective for Likelihood {
    fn evaluate(&self, _: usize, tokens: TokenStatistics<'_>) -> Result<TokenGradients, ObjectiveError> {
        Ok(TokenGradients { d_logprobs: vec![-self.0; tokens.logprobs.len()], ..TokenGradients::default() })
    }
}

/// Returns the shortest of some runs, in seconds.
fn shortest<E>(runs: usize, mut work: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    let mut best = f64::INFINITY;
    for _ in 0..runs {
        let start = Instant::now();
        work()?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(best)
}

#[expect(clippy::print_stdout, reason = "an example that reports")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::read();
    let get = |name: &str, default: usize| arguments.number(name, default);
    let (hidden, heads) = (get("hidden", 256)?, get("heads", 4)?);
    let config = ModelConfig {
        vocab_size: get("vocab", 2048)?,
        hidden_size: hidden,
        intermediate_size: get("ffn", 704)?,
        num_hidden_layers: get("layers", 6)?,
        num_attention_heads: heads,
        num_key_value_heads: get("kv", 2)?,
        head_dim: hidden / heads,
        max_position_embeddings: get("length", 512)?,
        tie_word_embeddings: get("tied", 1)? == 1,
        ..ModelConfig::default()
    };
    let (count, length, steps) = (get("sequences", 16)?, get("length", 512)?, get("steps", 5)?);
    let lora = LoraConfig { rank: get("rank", 32)?, ..LoraConfig::default() };
    let settings = LearnerConfig { lanes: get("lanes", 2)?, ..LearnerConfig::default() };
    let mut rng = Seed::derive(0, Purpose::World, &[]).rng();
    let vocabulary = config.vocab_size;
    let batch: Vec<TokenSequence> = (0..count)
        .map(|_| TokenSequence {
            tokens: (0..length).map(|_| rng.below(vocabulary) as u32).collect(),
            spans: vec![TurnSpan { turn: 0, start: 1, end: length }],
        })
        .collect();
    let base = Arc::new(Parameters::init(config, Seed::derive(0, Purpose::Init, &[]))?);
    let adapter = Adapter::init(&base.config, &lora, Seed::derive(0, Purpose::Init, &[1]))?;
    let adapted = Weights::adapted(Arc::clone(&base), adapter)?;
    let whole = Weights::from(Arc::new((*base).clone()));
    let objective = Likelihood(1.0 / (count * (length - 1)) as f32);
    for (name, weights) in [("all weights", whole), ("adapter", adapted)] {
        let packing = shortest(steps, || {
            EngineWeights::of(&weights, 0, Compute::F32).map(|packed| drop(black_box(packed)))
        })?;
        let mut learner = NativeLearner::new(weights, settings)?;
        // The first step also allocates.
        let mut step = || {
            learner.forward_backward(&TokenBatch::of(&batch), &objective)?;
            learner.step(1e-3).map(|_| ())
        };
        step()?;
        let seconds = shortest(steps, step)?;
        let trained = learner.trained_len();
        // A gradient per lane, and two moments.
        let state = 4 * trained * (settings.lanes + 2);
        println!(
            "{name:<12} {trained:>12} trained, {:>9.1} MB of gradients and moments, {:>8.0} tokens/s, packed in {:.2} ms",
            state as f64 / 1e6,
            (count * length) as f64 / seconds,
            1e3 * packing
        );
    }
    Ok(())
}
