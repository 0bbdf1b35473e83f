//! Training speed of a shape: tokens per second of forward, backward and optimizer step.
//!
//! ```text
//! cargo run --release -p turnwise-model --example train_speed -- \
//!     hidden=256 layers=6 heads=4 kv=2 ffn=704 vocab=2048 sequences=16 length=512 lanes=2 steps=5 compute=f32 device=cpu
//! ```
//!
//! Trains on every token of a sequence except the first, with a likelihood loss.

mod arguments;

use std::time::Instant;

use turnwise_core::{
    Learner, Objective, ObjectiveError, Purpose, Seed, TokenBatch, TokenGradients, TokenSequence,
    TokenStatistics, TurnSpan,
};
use turnwise_model::{LearnerConfig, ModelConfig, NativeLearner, Parameters};

use arguments::Arguments;

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

#[expect(clippy::print_stdout, reason = "an example that reports")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::read();
    let get = |name: &str, default: usize| arguments.number(name, default);
    let config = ModelConfig {
        vocab_size: get("vocab", 2048)?,
        hidden_size: get("hidden", 256)?,
        intermediate_size: get("ffn", 704)?,
        num_hidden_layers: get("layers", 6)?,
        num_attention_heads: get("heads", 4)?,
        num_key_value_heads: get("kv", 2)?,
        head_dim: get("hidden", 256)? / get("heads", 4)?,
        max_position_embeddings: get("length", 512)?,
        rope_theta: 1e6,
        tie_word_embeddings: get("tied", 1)? == 1,
        ..ModelConfig::default()
    };
    let (count, length, steps) = (get("sequences", 16)?, get("length", 512)?, get("steps", 5)?);
    let (compute, device) = (arguments.compute()?, arguments.device()?);
    let settings = LearnerConfig {
        micro_batch_tokens: get("micro", LearnerConfig::default().micro_batch_tokens)?,
        lanes: get("lanes", 2)?,
        recompute: get("recompute", 0)? == 1,
        compute,
        device,
        ..LearnerConfig::default()
    };
    let mut rng = Seed::derive(0, Purpose::World, &[]).rng();
    let vocabulary = config.vocab_size;
    let batch: Vec<TokenSequence> = (0..count)
        .map(|_| TokenSequence {
            tokens: (0..length).map(|_| rng.below(vocabulary) as u32).collect(),
            spans: vec![TurnSpan { turn: 0, start: 1, end: length }],
        })
        .collect();
    let parameters = Parameters::init(config, Seed::derive(0, Purpose::Init, &[]))?;
    let weights = parameters.data.len();
    let mut learner = NativeLearner::new(parameters, settings)?;
    let objective = Likelihood(1.0 / (count * (length - 1)) as f32);
    let mut best = 0.0f64;
    let mut rates = Vec::new();
    for step in 0..=steps {
        let start = Instant::now();
        let report = learner.forward_backward(&TokenBatch::of(&batch), &objective)?;
        learner.step(1e-3)?;
        let rate = (count * length) as f64 / start.elapsed().as_secs_f64();
        // The first step also allocates.
        if step > 0 {
            rates.push(rate);
            best = best.max(rate);
        }
        println!("step {step}: loss {:.4}, {rate:.0} tokens/s", report.loss);
    }
    rates.sort_by(f64::total_cmp);
    let median = rates.get(rates.len() / 2).copied().unwrap_or(0.0);
    println!("computed {}", compute.path());
    println!("{weights} weights, {count} x {length} tokens: median {median:.0}, best {best:.0} tokens/s");
    Ok(())
}
