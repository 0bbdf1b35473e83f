//! Speed of the losses. Run: `cargo bench -p turnwise-objective`.
#![expect(clippy::expect_used, reason = "a bench fails by panicking")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use turnwise_core::{Objective as _, Purpose, Seed, TokenStatistics, TurnSpan};
use turnwise_objective::{Loss, ObjectiveBatch, ObjectiveConfig, ObjectiveSequence, Registry};

const SEQUENCES: usize = 128;
const TURNS: usize = 16;
const TOKENS: usize = 32;

const LOSSES: [(&str, &str); 3] = [
    ("token ratio, KL", r#"{"kl": {"coef": 0.01}}"#),
    ("sequence ratio", r#"{"ratio": "sequence-token"}"#),
    ("turn ratio, normalization", r#"{"ratio": "turn", "normalization": {"norm": "token"}}"#),
];

fn losses(criterion: &mut Criterion) {
    let mut rng = Seed::derive(1, Purpose::Credit, &[]).rng();
    let count = TURNS * TOKENS;
    let mut logprobs = Vec::new();
    let sequences = (0..SEQUENCES).map(|_| {
        let spans = (0..TURNS).map(|turn| {
            let start = 1 + turn * (TOKENS + 8);
            TurnSpan { turn, start, end: start + TOKENS }
        });
        let old: Vec<f32> = (0..count).map(|_| -2.0 * rng.uniform() as f32).collect();
        logprobs.push(old.iter().map(|old| old + 0.1 * rng.normal() as f32).collect::<Vec<f32>>());
        let advantages = (0..TURNS).map(|_| rng.normal()).collect();
        let reference = old.clone();
        ObjectiveSequence {
            ref_logprobs: Some(reference),
            ..ObjectiveSequence::new(spans.collect(), old, advantages)
        }
    });
    let batch = ObjectiveBatch::new(sequences.collect());
    let mut group = criterion.benchmark_group("loss");
    group.throughput(Throughput::Elements((SEQUENCES * count) as u64));
    for (name, config) in LOSSES {
        let config: ObjectiveConfig = serde_json::from_str(config).expect("a valid config");
        let loss = Loss::new(&config, &Registry::builtin()).expect("a valid config");
        group.bench_function(BenchmarkId::new("minibatch", name), |bencher| {
            bencher.iter(|| {
                let minibatch = loss.for_minibatch(batch.clone(), &[]).expect("a batch that fits");
                for (sequence, logprobs) in logprobs.iter().enumerate() {
                    let statistics = TokenStatistics { logprobs, entropies: &[], reference_kls: &[] };
                    let share = minibatch.evaluate(sequence, statistics);
                    black_box(share.expect("finite numbers").loss);
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, losses);
criterion_main!(benches);
