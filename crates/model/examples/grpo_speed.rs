//! Speed of GRPO with LoRA on a pretrained model: each round samples groups of responses and
//! updates once.
//!
//! ```text
//! cargo run --release -p turnwise-model --example grpo_speed -- \
//!     model=DIR groups=8 size=8 prompt=256 response=32 rank=16 lanes=2 micro=4096 rounds=3 compute=f32
//! ```
//!
//! `shape=NAME` instead of a model uses random weights of that shape; `device=cuda` runs on a GPU
//! (feature `cuda`). Prompts are random tokens, one per group; responses end only at their length.
//! Prints one line of JSON with medians after a warm-up round: `sample_s` includes packing the
//! weights (`pack_s`), `update_s` is forward, backward and AdamW. `benches/peer/pretrained.py` does
//! the same in Python and prints the ratios.

#![expect(clippy::print_stdout, reason = "an example that reports")]

mod arguments;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use turnwise_core::{
    Learner as _, Objective, ObjectiveError, Purpose, SampleRequest, Sampler as _, SamplingParams, Seed,
    TokenBatch, TokenGradients, TokenSequence, TokenStatistics, TurnSpan,
};
use turnwise_model::engine::{EngineConfig, NativeEngine, SharedWeights};
use turnwise_model::{Adapter, LearnerConfig, LoraConfig, NativeLearner, Weights, load_model};

use arguments::{Arguments, median, random_weights};

// The allocator of the `turnwise` program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Clone, Copy)]
struct Sizes {
    groups: usize,
    size: usize,
    prompt: usize,
    response: usize,
    lanes: usize,
    vocab: usize,
}

/// PPO's clipped surrogate, averaged over all tokens.
struct Clipped {
    old: Vec<Vec<f32>>,
    advantages: Vec<f64>,
    tokens: f64,
}

impl Objective for Clipped {
    fn evaluate(
        &self,
        sequence: usize,
        tokens: TokenStatistics<'_>,
    ) -> Result<TokenGradients, ObjectiveError> {
        let advantage = self.advantages[sequence];
        let (mut loss, mut d_logprobs) = (0.0, Vec::with_capacity(tokens.logprobs.len()));
        for (&new, &old) in tokens.logprobs.iter().zip(&self.old[sequence]) {
            let ratio = f64::from(new - old).exp();
            let clipped = ratio.clamp(0.8, 1.28);
            loss -= (ratio * advantage).min(clipped * advantage) / self.tokens;
            let kept = ratio * advantage <= clipped * advantage;
            d_logprobs.push(if kept { (-ratio * advantage / self.tokens) as f32 } else { 0.0 });
        }
        Ok(TokenGradients { loss, d_logprobs, ..TokenGradients::default() })
    }
}

/// Prompt, response and log-probs of every sample, in group order.
type Samples = Vec<(Vec<u32>, Vec<u32>, Vec<f32>)>;

fn sample_lane(sizes: Sizes, weights: &SharedWeights, lane: usize, round: u64) -> Result<Samples, String> {
    let groups: Vec<usize> = (lane..sizes.groups).step_by(sizes.lanes).collect();
    let slots = (groups.len() * sizes.size).max(1);
    let config = EngineConfig { max_num_seqs: slots, max_model_len: sizes.prompt + sizes.response };
    let mut engine = NativeEngine::with_shared(weights, config, None).map_err(|error| error.to_string())?;
    let mut samples = Samples::new();
    let mut ids = Vec::new();
    for &group in &groups {
        let mut rng = Seed::derive(round, Purpose::World, &[group as u64]).rng();
        let prompt: Vec<u32> = (0..sizes.prompt).map(|_| rng.below(sizes.vocab) as u32).collect();
        for sample in 0..sizes.size {
            let session = (group * sizes.size + sample) as u64;
            let request = SampleRequest {
                session,
                prompt: prompt.clone(),
                params: SamplingParams { max_tokens: sizes.response, ..SamplingParams::default() },
                seed: Seed::derive(round, Purpose::Rollout, &[session]),
            };
            ids.push(engine.submit(request).map_err(|error| error.to_string())?);
            samples.push((prompt.clone(), Vec::new(), Vec::new()));
        }
    }
    loop {
        let done = engine.poll().map_err(|error| error.to_string())?;
        if done.is_empty() {
            return Ok(samples);
        }
        for completion in done {
            let place = ids.iter().position(|&id| id == completion.request);
            let Some(sample) = place.and_then(|place| samples.get_mut(place)) else {
                return Err("an answer nobody asked for".into());
            };
            (sample.1, sample.2) = (completion.tokens, completion.logprobs);
        }
    }
}

fn sample(sizes: Sizes, weights: &SharedWeights, round: u64) -> Result<Samples, String> {
    let lanes: Vec<Result<Samples, String>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..sizes.lanes)
            .map(|lane| scope.spawn(move || sample_lane(sizes, weights, lane, round)))
            .collect();
        let lost = |_| Err("a lane ended unexpectedly".to_owned());
        handles.into_iter().map(|handle| handle.join().unwrap_or_else(lost)).collect()
    });
    lanes.into_iter().try_fold(Samples::new(), |mut all, lane| {
        all.extend(lane?);
        Ok(all)
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::read();
    let get = |name: &str, default: usize| arguments.number(name, default);
    let (compute, device) = (arguments.compute()?, arguments.device()?);
    let context = get("prompt", 256)? + get("response", 32)?;
    let base = match (arguments.text("model"), arguments.shape(context)?) {
        (Some(folder), _) => load_model(Path::new(folder))?,
        (None, Some(config)) => random_weights(config),
        (None, None) => return Err("name a model folder, model=DIR, or a shape with random weights".into()),
    };
    let base = Arc::new(base);
    let sizes = Sizes {
        groups: get("groups", 8)?,
        size: get("size", 8)?,
        prompt: get("prompt", 256)?,
        response: get("response", 32)?,
        lanes: get("lanes", 2)?.max(1),
        vocab: base.config.vocab_size,
    };
    let rank = get("rank", 16)?;
    let lora = LoraConfig { rank, alpha: 2.0 * rank as f64, ..LoraConfig::default() };
    let adapter = Adapter::init(&base.config, &lora, Seed::derive(0, Purpose::Init, &[]))?;
    let settings = LearnerConfig {
        compute,
        device,
        lanes: sizes.lanes,
        micro_batch_tokens: get("micro", 4096)?,
        share_prefixes: get("share", 1)? != 0,
        ..LearnerConfig::default()
    };
    let mut learner = NativeLearner::new(Weights::adapted(base, adapter)?, settings)?;
    let rounds = get("rounds", 3)?.max(1);
    let (mut packing, mut sampling, mut updating, mut computed, mut total) =
        (Vec::new(), Vec::new(), Vec::new(), 0, 0);
    for round in 0..=rounds {
        let started = Instant::now();
        let weights = learner.engine_weights()?;
        let packed = started.elapsed().as_secs_f64();
        let samples = sample(sizes, &weights, round as u64)?;
        drop(weights);
        let sampled = started.elapsed().as_secs_f64();
        let batch: Vec<TokenSequence> = samples
            .iter()
            .map(|(prompt, response, _)| {
                let end = prompt.len() + response.len();
                let spans = vec![TurnSpan { turn: 0, start: prompt.len(), end }];
                TokenSequence { tokens: [&prompt[..], response].concat(), spans }
            })
            .collect();
        let objective = Clipped {
            // A group's advantages sum to zero, as in GRPO.
            advantages: (0..batch.len()).map(|index| if index % 2 == 0 { 1.0 } else { -1.0 }).collect(),
            tokens: samples.iter().map(|(_, response, _)| response.len() as f64).sum(),
            old: samples.into_iter().map(|(_, _, logprobs)| logprobs).collect(),
        };
        let started = Instant::now();
        let report = learner.forward_backward(&TokenBatch::of(&batch), &objective)?;
        learner.step(1e-5)?;
        let updated = started.elapsed().as_secs_f64();
        if round > 0 {
            packing.push(packed);
            sampling.push(sampled);
            updating.push(updated);
        }
        (computed, total) = (report.total_tokens - report.shared_tokens, report.total_tokens);
    }
    let iterations = sampling.iter().zip(&updating).map(|(sampled, updated)| sampled + updated).collect();
    println!(
        "{{\"compute\": \"{}\", \"pack_s\": {:.3}, \"sample_s\": {:.3}, \"update_s\": {:.3}, \"iteration_s\": {:.3}, \"update_tokens_computed\": {computed}, \
         \"update_tokens\": {total}}}",
        compute.path(),
        median(packing),
        median(sampling),
        median(updating),
        median(iterations),
    );
    Ok(())
}
