//! Training speed: forward, backward and optimiser step on two lanes. `cargo bench --bench training`.
#![expect(clippy::expect_used, reason = "criterion's macros; a bench may fail")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use turnwise_core::{
    Learner, Objective, ObjectiveError, Purpose, Seed, TokenBatch, TokenGradients, TokenSequence,
    TokenStatistics, TurnSpan,
};
use turnwise_model::{LearnerConfig, ModelConfig, NativeLearner, Parameters};

struct Likelihood;

impl Objective for Likelihood {
    fn evaluate(&self, _: usize, tokens: TokenStatistics<'_>) -> Result<TokenGradients, ObjectiveError> {
        Ok(TokenGradients { d_logprobs: vec![-1e-4; tokens.logprobs.len()], ..TokenGradients::default() })
    }
}

/// Name, hidden, layers, heads, key/value heads, MLP width, vocabulary, sequences, length.
const SHAPES: [(&str, [usize; 8]); 2] =
    [("0.8M", [128, 4, 4, 2, 384, 600, 16, 150]), ("5M", [256, 6, 4, 2, 704, 2048, 16, 512])];

fn training(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("training");
    group.sample_size(10);
    for (name, [hidden, layers, heads, key_values, inner, vocabulary, sequences, length]) in SHAPES {
        let config = ModelConfig {
            vocab_size: vocabulary,
            hidden_size: hidden,
            intermediate_size: inner,
            num_hidden_layers: layers,
            num_attention_heads: heads,
            num_key_value_heads: key_values,
            head_dim: hidden / heads,
            max_position_embeddings: length,
            rope_theta: 1e6,
            tie_word_embeddings: true,
            ..ModelConfig::default()
        };
        let mut rng = Seed::derive(0, Purpose::World, &[]).rng();
        let batch: Vec<TokenSequence> = (0..sequences)
            .map(|_| TokenSequence {
                tokens: (0..length).map(|_| rng.below(vocabulary) as u32).collect(),
                spans: vec![TurnSpan { turn: 0, start: 1, end: length }],
            })
            .collect();
        let parameters =
            Parameters::init(config, Seed::derive(0, Purpose::Init, &[])).expect("a good config");
        let mut learner = NativeLearner::new(parameters, LearnerConfig::default()).expect("good settings");
        group.throughput(Throughput::Elements((sequences * length) as u64));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                learner.forward_backward(&TokenBatch::of(&batch), &Likelihood).expect("a good batch");
                learner.step(1e-4).expect("a finite gradient")
            });
        });
    }
    group.finish();
}

criterion_group!(benches, training);
criterion_main!(benches);
