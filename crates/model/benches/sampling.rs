//! Sampling with one engine on one thread: 16 prompts of 128 tokens with 32 new tokens each. Shapes
//! are `sample_speed`'s 5 M, a 0.8 M, and one of SmolLM2's size, also with weights rounded to bf16.
#![expect(clippy::unwrap_used, reason = "a broken setting shall stop the measurement")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use turnwise_core::{Purpose, SampleRequest, Sampler as _, SamplingParams, Seed};
use turnwise_model::engine::{EngineConfig, EngineWeights, NativeEngine};
use turnwise_model::{Compute, ModelConfig, ParameterLayout, Parameters};

/// Returns random weights, optionally rounded like a bf16 checkpoint.
fn weights(
    [hidden, layers, ffn, vocab]: [usize; 4],
    saved_bf16: bool,
    compute: Compute,
) -> Arc<EngineWeights> {
    let config = ModelConfig {
        vocab_size: vocab,
        hidden_size: hidden,
        intermediate_size: ffn,
        num_hidden_layers: layers,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: hidden / 4,
        max_position_embeddings: 256,
        tie_word_embeddings: true,
        ..ModelConfig::default()
    };
    let layout = ParameterLayout::new(&config);
    let mut rng = Seed::derive(0, Purpose::Init, &[]).rng();
    let mut data = vec![1.0; layout.len];
    for tensor in layout.tensors.iter().filter(|tensor| tensor.decays) {
        data[tensor.range.clone()].fill_with(|| 0.02 * rng.normal() as f32);
    }
    if saved_bf16 {
        for weight in &mut data {
            *weight = half::bf16::from_f32(*weight).to_f32();
        }
    }
    Arc::new(EngineWeights::of(&Parameters { config, layout, data }.into(), 0, compute).unwrap())
}

fn sampling(criterion: &mut Criterion) {
    let (sessions, prompt_len, new) = (16u64, 128u32, 32);
    let mut group = criterion.benchmark_group("sampling");
    group.sample_size(10).throughput(Throughput::Elements(sessions * new));
    for (name, weights) in [
        ("5M", weights([256, 6, 704, 2048], false, Compute::F32)),
        ("5M, bf16", weights([256, 6, 704, 2048], false, Compute::Bf16)),
        ("0.8M", weights([128, 4, 384, 512], false, Compute::F32)),
        // Its weights exceed all caches.
        ("135M", weights([576, 30, 1536, 49152], false, Compute::F32)),
        ("135M, saved in bf16", weights([576, 30, 1536, 49152], true, Compute::F32)),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let sizes = EngineConfig { max_num_seqs: sessions as usize, max_model_len: 256 };
                let mut engine = NativeEngine::with_weights(Arc::clone(&weights), sizes, None).unwrap();
                for session in 0..sessions {
                    let params = SamplingParams { max_tokens: new as usize, ..SamplingParams::default() };
                    let prompt = (0..prompt_len).map(|at| (at * 7 + session as u32 * 13) % 512).collect();
                    let seed = Seed::derive(0, Purpose::Rollout, &[session]);
                    engine.submit(SampleRequest { session, prompt, params, seed }).unwrap();
                }
                let mut done = 0;
                while done < sessions as usize {
                    done += black_box(engine.poll().unwrap()).len();
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, sampling);
criterion_main!(benches);
