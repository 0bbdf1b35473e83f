//! Speed of training with shared prefixes and with the same sequences in full, and the ratio of
//! both.
//!
//! ```text
//! cargo run --release -p turnwise-model --example prefix_speed -- \
//!     groups=8 size=8 prompt=256 response=32 head=0 lanes=2 micro=4096 steps=3 compute=f32 device=cpu
//! ```
//!
//! Each group of responses shares a prompt, and all prompts share their first `head` tokens. The
//! model has 25 M weights. A step is a forward and a backward pass over all of them.

mod arguments;

use std::time::Instant;

use turnwise_core::{
    Learner, Objective, ObjectiveError, Purpose, Seed, TokenBatch, TokenGradients, TokenSequence,
    TokenStatistics, TurnSpan,
};
use turnwise_model::{LearnerConfig, ModelConfig, NativeLearner, Parameters};

use arguments::Arguments;

struct Likelihood;

impl Objective for Likelihood {
    fn evaluate(&self, _: usize, tokens: TokenStatistics<'_>) -> Result<TokenGradients, ObjectiveError> {
        let sum: f64 = tokens.logprobs.iter().map(|&logprob| f64::from(logprob)).sum();
        let d_logprobs = vec![-1e-4; tokens.logprobs.len()];
        Ok(TokenGradients { loss: -1e-4 * sum, d_logprobs, ..TokenGradients::default() })
    }
}

#[expect(clippy::print_stdout, reason = "an example that reports")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::read();
    let get = |name: &str, default: usize| arguments.number(name, default);
    let (groups, size) = (get("groups", 8)?, get("size", 8)?);
    let (head, prompt, response) = (get("head", 0)?, get("prompt", 256)?, get("response", 32)?);
    let steps = get("steps", 3)?;
    let (compute, device) = (arguments.compute()?, arguments.device()?);
    let config = ModelConfig {
        vocab_size: 8192,
        hidden_size: 448,
        intermediate_size: 1216,
        num_hidden_layers: 10,
        num_attention_heads: 7,
        num_key_value_heads: 7,
        head_dim: 64,
        max_position_embeddings: prompt + response,
        rope_theta: 1e6,
        tie_word_embeddings: true,
        ..ModelConfig::default()
    };
    let mut rng = Seed::derive(0, Purpose::World, &[]).rng();
    let mut tokens = |count: usize| -> Vec<u32> { (0..count).map(|_| rng.below(8192) as u32).collect() };
    let start = tokens(head.min(prompt));
    let mut batch = Vec::new();
    for _ in 0..groups {
        let prompt = [start.clone(), tokens(prompt - start.len())].concat();
        for _ in 0..size {
            let spans = vec![TurnSpan { turn: 0, start: prompt.len(), end: prompt.len() + response }];
            batch.push(TokenSequence { tokens: [prompt.clone(), tokens(response)].concat(), spans });
        }
    }
    let parameters = Parameters::init(config, Seed::derive(0, Purpose::Init, &[]))?;
    println!("{} weights, computed {}", parameters.data.len(), compute.path());
    let mut seconds = [0.0; 2];
    for (share_prefixes, best) in [true, false].into_iter().zip(&mut seconds) {
        let settings = LearnerConfig {
            share_prefixes,
            compute,
            device,
            lanes: get("lanes", 2)?,
            micro_batch_tokens: get("micro", 4096)?,
            ..LearnerConfig::default()
        };
        let mut learner = NativeLearner::new(parameters.clone(), settings)?;
        *best = f64::INFINITY;
        // The first step also allocates.
        for step in 0..=steps {
            let started = Instant::now();
            let report = learner.forward_backward(&TokenBatch::of(&batch), &Likelihood)?;
            let took = started.elapsed().as_secs_f64();
            if step > 0 {
                *best = best.min(took);
            } else {
                let computed = report.total_tokens - report.shared_tokens;
                println!(
                    "{}: {computed} of {} tokens computed, loss {:.6}",
                    if share_prefixes { "shared" } else { "flat" },
                    report.total_tokens,
                    report.loss
                );
            }
        }
    }
    let [shared, flat] = seconds;
    println!("shared {shared:.3} s, flat {flat:.3} s: {:.2} times as fast", flat / shared);
    Ok(())
}
