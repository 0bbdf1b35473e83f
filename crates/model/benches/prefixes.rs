//! Training with shared prefixes against the same sequences in full: 8 groups of 8 responses of 32 tokens to prompts of
//! 256. `cargo bench --bench prefixes`.
#![expect(clippy::expect_used, reason = "criterion's macros; a bench may fail")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use turnwise_core::{
    Learner, Objective, ObjectiveError, Purpose, Seed, TokenGradients, TokenSequence, TokenStatistics,
    TurnSpan,
};
use turnwise_model::{Compute, LearnerConfig, ModelConfig, NativeLearner, Parameters};

struct Likelihood;

impl Objective for Likelihood {
    fn evaluate(&self, _: usize, tokens: TokenStatistics<'_>) -> Result<TokenGradients, ObjectiveError> {
        Ok(TokenGradients { d_logprobs: vec![-1e-4; tokens.logprobs.len()], ..TokenGradients::default() })
    }
}

const GROUPS: usize = 8;
const GROUP_SIZE: usize = 8;
const PROMPT: usize = 256;
const RESPONSE: usize = 32;

fn prefixes(criterion: &mut Criterion) {
    // 25 M weights.
    let config = ModelConfig {
        vocab_size: 8192,
        hidden_size: 448,
        intermediate_size: 1216,
        num_hidden_layers: 10,
        num_attention_heads: 7,
        num_key_value_heads: 7,
        head_dim: 64,
        max_position_embeddings: PROMPT + RESPONSE,
        rope_theta: 1e6,
        tie_word_embeddings: true,
        ..ModelConfig::default()
    };
    let mut rng = Seed::derive(0, Purpose::World, &[]).rng();
    let mut tokens = |count: usize| -> Vec<u32> { (0..count).map(|_| rng.below(8192) as u32).collect() };
    let mut batch = Vec::new();
    for _ in 0..GROUPS {
        let prompt = tokens(PROMPT);
        for _ in 0..GROUP_SIZE {
            batch.push(TokenSequence {
                tokens: [prompt.clone(), tokens(RESPONSE)].concat(),
                spans: vec![TurnSpan { turn: 0, start: PROMPT, end: PROMPT + RESPONSE }],
            });
        }
    }
    let mut group = criterion.benchmark_group("prefixes");
    group.sample_size(10);
    group.throughput(Throughput::Elements((GROUPS * GROUP_SIZE * (PROMPT + RESPONSE)) as u64));
    for (name, share_prefixes, compute) in [
        ("shared-f32", true, Compute::F32),
        ("flat-f32", false, Compute::F32),
        ("shared-bf16", true, Compute::Bf16),
        ("flat-bf16", false, Compute::Bf16),
    ] {
        let parameters =
            Parameters::init(config.clone(), Seed::derive(0, Purpose::Init, &[])).expect("a good config");
        let settings =
            LearnerConfig { share_prefixes, compute, micro_batch_tokens: 4096, ..LearnerConfig::default() };
        let mut learner = NativeLearner::new(parameters, settings).expect("good settings");
        group.bench_function(name, |bencher| {
            bencher.iter(|| learner.forward_backward(&batch, &Likelihood).expect("a good batch"));
        });
    }
    group.finish();
}

criterion_group!(benches, prefixes);
criterion_main!(benches);
