//! Speed of credit. Run: `cargo bench -p turnwise-credit`.
#![expect(clippy::expect_used, reason = "a bench fails by panicking")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use turnwise_core::{Batch, Group, Purpose, Rng, Seed, Task, Trajectory, Turn};
use turnwise_credit::anchor::{AnchorConfig, Anchors, Assignment, Matching};
use turnwise_credit::{CreditConfig, CreditInputs, Pipeline};

/// Creates `groups` groups of `size` trajectories of `length` turns. Each group has `states`
/// different states, texts of about `characters` characters.
fn batch(groups: usize, size: usize, length: usize, states: usize, characters: usize) -> Batch {
    let mut rng = Seed::derive(1, Purpose::Credit, &[]).rng();
    let group = |number: usize, rng: &mut Rng| {
        let texts: Vec<String> = (0..states).map(|_| page(rng, characters)).collect();
        let trajectory = |sample: usize, rng: &mut Rng| {
            let turns = (0..length)
                .map(|turn| Turn {
                    observation: texts[rng.below(states)].clone(),
                    action: format!("action {}", rng.below(8)),
                    valid: rng.chance(0.9),
                    reward: if turn + 1 == length && rng.chance(0.5) { 10.0 } else { 0.0 },
                    entropies: (0..32).map(|_| rng.uniform() as f32).collect(),
                    response_ids: vec![0; 32],
                    ..Turn::default()
                })
                .collect();
            let task = Task::new(number.to_string(), "bench", "goal");
            Trajectory { group: number, sample, ..Trajectory::new(task, turns) }
        };
        Group { trajectories: (0..size).map(|sample| trajectory(sample, rng)).collect() }
    };
    Batch { groups: (0..groups).map(|number| group(number, &mut rng)).collect() }
}

fn page(rng: &mut Rng, characters: usize) -> String {
    let mut text = String::new();
    while text.len() < characters {
        let word = rng.below(400);
        let syllables = ["ka", "ri", "to", "men", "sal", "ve", "dor", "in", "plo", "es", "ta", "un"];
        text.push_str(syllables[word % 12]);
        text.push_str(syllables[word / 12 % 12]);
        if word.is_multiple_of(3) {
            text.push_str(syllables[word / 34 % 12]);
        }
        text.push(if rng.chance(0.1) { '.' } else { ' ' });
    }
    text
}

fn pipelines(c: &mut Criterion) {
    let config: CreditConfig = serde_json::from_str(
        r#"{"estimator":{"kind":"gigpo"},"refinements":[{"kind":"salt"},{"kind":"aem"}]}"#,
    )
    .expect("a valid config");
    let pipeline = Pipeline::from_config(&config).expect("a valid config");
    let mut group = c.benchmark_group("gigpo+salt+aem");
    for (name, batch) in [
        ("128x50", batch(16, 8, 50, 40, 200)),
        ("1280x4", batch(256, 5, 4, 12, 200)),
        ("128x100", batch(16, 8, 100, 40, 200)),
    ] {
        group.throughput(Throughput::Elements(batch.trajectories().map(|t| t.turns.len() as u64).sum()));
        group.bench_with_input(BenchmarkId::new("run", name), &batch, |bencher, batch| {
            bencher.iter(|| pipeline.run(black_box(batch)));
        });
        group.bench_with_input(BenchmarkId::new("explain", name), &batch, |bencher, batch| {
            bencher.iter(|| pipeline.report(&CreditInputs::new(black_box(batch)), true));
        });
    }
    group.finish();
}

fn similarity(c: &mut Criterion) {
    let mut group = c.benchmark_group("similarity anchors, 256 groups of 20 turns, 1500 characters");
    group.sample_size(10);
    for (name, states) in [("all different", 20), ("half repeated", 10)] {
        let mut batch = batch(256, 5, 4, states, 1500);
        if states == 20 {
            let mut rng = Seed::derive(2, Purpose::Credit, &[]).rng();
            for trajectory in batch.groups.iter_mut().flat_map(|group| &mut group.trajectories) {
                for turn in &mut trajectory.turns {
                    turn.observation = page(&mut rng, 1500);
                }
            }
        }
        for autojunk in [false, true] {
            let config = AnchorConfig {
                matching: Matching::Similarity,
                threshold: 0.9,
                assignment: Assignment::GreedyMax,
                autojunk,
            };
            group.bench_function(BenchmarkId::new(name, format!("autojunk={autojunk}")), |bencher| {
                bencher.iter(|| {
                    Anchors::find_all(&batch, &config).iter().map(|anchors| anchors.count).sum::<usize>()
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, pipelines, similarity);
criterion_main!(benches);
