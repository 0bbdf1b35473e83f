//! Sampling speed of the native engine.
//!
//! Run `cargo run --release -p turnwise-model --example sample_speed -- key=value ...` with the
//! keys and defaults of [`Setting`]. `bf16=1` multiplies matrices in bf16 if supported, `cuda=1`
//! samples on a GPU (feature `cuda`), `saved_bf16=1` rounds the weights like a bf16 checkpoint, and
//! `warm` sets unmeasured rounds.
//!
//! Prints one line of JSON with medians. `new_tokens_per_s` is new tokens over the time of a whole
//! round, including prompts; `decode_tokens_per_s` subtracts the time of a round with one new
//! token.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program")]

use std::time::Instant;

use turnwise_core::{Purpose, SampleRequest, Sampler as _, SamplingParams, Seed};
use turnwise_model::engine::{EngineConfig, NativeEngine, SharedWeights};
use turnwise_model::{Compute, Device, ModelConfig, ParameterLayout, Parameters};

#[derive(Clone, Debug)]
struct Setting {
    hidden: usize,
    layers: usize,
    heads: usize,
    key_value_heads: usize,
    ffn: usize,
    vocab: usize,
    prompts: usize,
    prompt_len: usize,
    new: usize,
    lanes: usize,
    bf16: usize,
    cuda: usize,
    saved_bf16: usize,
    warm: usize,
    rounds: usize,
}

fn main() {
    let mut setting = Setting {
        hidden: 256,
        layers: 6,
        heads: 4,
        key_value_heads: 2,
        ffn: 704,
        vocab: 2048,
        prompts: 64,
        prompt_len: 128,
        new: 64,
        lanes: 2,
        bf16: 0,
        cuda: 0,
        saved_bf16: 0,
        warm: 1,
        rounds: 5,
    };
    for argument in std::env::args().skip(1) {
        let parsed = argument.split_once('=').and_then(|(key, value)| Some((key, value.parse().ok()?)));
        let place = parsed.and_then(|(key, value): (&str, usize)| {
            let place = match key {
                "hidden" => &mut setting.hidden,
                "layers" => &mut setting.layers,
                "heads" => &mut setting.heads,
                "key_value_heads" => &mut setting.key_value_heads,
                "ffn" => &mut setting.ffn,
                "vocab" => &mut setting.vocab,
                "prompts" => &mut setting.prompts,
                "prompt_len" => &mut setting.prompt_len,
                "new" => &mut setting.new,
                "lanes" => &mut setting.lanes,
                "bf16" => &mut setting.bf16,
                "cuda" => &mut setting.cuda,
                "saved_bf16" => &mut setting.saved_bf16,
                "warm" => &mut setting.warm,
                "rounds" => &mut setting.rounds,
                _ => return None,
            };
            Some((place, value))
        });
        let Some((place, value)) = place else {
            eprintln!("`{argument}`: expected key=number with a key of {setting:?}");
            std::process::exit(2);
        };
        *place = value;
    }
    let mut parameters = random(&setting);
    if setting.saved_bf16 != 0 {
        for weight in &mut parameters.data {
            *weight = half::bf16::from_f32(*weight).to_f32();
        }
    }
    let count = parameters.data.len();
    let compute = if setting.bf16 == 0 { Compute::F32 } else { Compute::Bf16 };
    let started = Instant::now();
    let device = if setting.cuda == 0 { Device::Cpu } else { Device::Cuda };
    let weights = match SharedWeights::of(&parameters.into(), 0, device, compute) {
        Ok(weights) => weights,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    };
    eprintln!("{count} parameters, packed in {:?}, {}", started.elapsed(), compute.path());
    let prompts_only = median_seconds(&Setting { new: 1, ..setting.clone() }, &weights);
    let whole = median_seconds(&setting, &weights);
    let tokens = (setting.prompts * setting.new) as f64;
    let total = (setting.prompts * (setting.prompt_len + setting.new)) as f64;
    let later = (setting.prompts * setting.new.saturating_sub(1)) as f64;
    println!(
        "{{\"parameters\": {count}, \"prompts\": {}, \"prompt_len\": {}, \"new\": {}, \"lanes\": {}, \"seconds\": {whole:.4}, \
         \"prompt_seconds\": {prompts_only:.4}, \"new_tokens_per_s\": {:.0}, \"total_tokens_per_s\": {:.0}, \
         \"decode_tokens_per_s\": {:.0}}}",
        setting.prompts,
        setting.prompt_len,
        setting.new,
        setting.lanes,
        tokens / whole,
        total / whole,
        later / (whole - prompts_only),
    );
}

fn median_seconds(setting: &Setting, weights: &SharedWeights) -> f64 {
    let rounds = (0..setting.warm + setting.rounds.max(1)).map(|_| {
        let started = Instant::now();
        std::thread::scope(|scope| {
            for lane in 0..setting.lanes {
                scope.spawn(move || run(setting, weights, lane));
            }
        });
        started.elapsed().as_secs_f64()
    });
    let mut seconds: Vec<f64> = rounds.skip(setting.warm).collect();
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

fn run(setting: &Setting, weights: &SharedWeights, lane: usize) {
    let sessions: Vec<usize> = (lane..setting.prompts).step_by(setting.lanes).collect();
    let sizes =
        EngineConfig { max_num_seqs: sessions.len().max(1), max_model_len: setting.prompt_len + setting.new };
    let result = NativeEngine::with_shared(weights, sizes, None).map_err(|error| error.to_string());
    let answered = result.and_then(|mut engine| {
        for &session in &sessions {
            let mut rng = Seed::derive(1, Purpose::World, &[session as u64]).rng();
            let request = SampleRequest {
                session: session as u64,
                prompt: (0..setting.prompt_len).map(|_| rng.below(setting.vocab) as u32).collect(),
                params: SamplingParams { max_tokens: setting.new, ..SamplingParams::default() },
                seed: Seed::derive(1, Purpose::Rollout, &[session as u64]),
            };
            engine.submit(request).map_err(|error| error.to_string())?;
        }
        let mut tokens = 0;
        loop {
            let done = engine.poll().map_err(|error| error.to_string())?;
            if done.is_empty() {
                return Ok(tokens);
            }
            tokens += done.iter().map(|completion| completion.tokens.len()).sum::<usize>();
        }
    });
    match answered {
        Ok(tokens) => assert_eq!(tokens, sessions.len() * setting.new),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }
}

fn random(setting: &Setting) -> Parameters<f32> {
    let config = ModelConfig {
        vocab_size: setting.vocab,
        hidden_size: setting.hidden,
        intermediate_size: setting.ffn,
        num_hidden_layers: setting.layers,
        num_attention_heads: setting.heads,
        num_key_value_heads: setting.key_value_heads,
        head_dim: setting.hidden / setting.heads,
        max_position_embeddings: setting.prompt_len + setting.new,
        tie_word_embeddings: true,
        ..ModelConfig::default()
    };
    let layout = ParameterLayout::new(&config);
    let mut rng = Seed::derive(0, Purpose::Init, &[]).rng();
    let mut data = vec![1.0; layout.len];
    for tensor in layout.tensors.iter().filter(|tensor| tensor.decays) {
        data[tensor.range.clone()].fill_with(|| 0.02 * rng.normal() as f32);
    }
    Parameters { config, layout, data }
}
