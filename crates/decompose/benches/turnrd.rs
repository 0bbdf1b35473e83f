//! Speed of TurnRD at the paper's sizes: 64 trajectories of 20 turns, vectors of width 1536, one
//! epoch in minibatches of 16; and their credits. `cargo bench --bench turnrd`; elements are turns.
//! `benches/peer/turnrd.py` runs PyTorch beside it.
#![expect(clippy::expect_used, reason = "criterion's macros; a bench may fail")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use turnwise_core::{Purpose, Seed};
use turnwise_decompose::turnrd::{CreditRule, Sample, TurnRd, TurnRdConfig};

const TRAJECTORIES: usize = 64;
const TURNS: usize = 20;
const WIDTH: usize = 1536;

fn turnrd(criterion: &mut Criterion) {
    let mut rng = Seed::derive(0, Purpose::World, &[]).rng();
    let mut vector = |len: usize| -> Vec<f32> { (0..len).map(|_| rng.normal() as f32).collect() };
    let samples: Vec<Sample> = (0..TRAJECTORIES)
        .map(|index| Sample {
            turns: vector(TURNS * WIDTH),
            goal: vector(WIDTH),
            ret: (index % 2) as f64,
            progress: (0..TURNS).map(|turn| Some(turn as f32 / TURNS as f32)).collect(),
            weight: 1.0,
        })
        .collect();
    // The paper's credits, as in `benches/peer/turnrd.py`.
    let config = TurnRdConfig { epochs: 1, credits: CreditRule::Projection, ..TurnRdConfig::default() };
    let mut model = TurnRd::new(config, WIDTH, 0).expect("a good config");
    let mut group = criterion.benchmark_group("turnrd");
    group.sample_size(20);
    group.throughput(Throughput::Elements((TRAJECTORIES * TURNS) as u64));
    group.bench_function("credits", |bencher| {
        let trajectories: Vec<(&[f32], &[f32], f64)> =
            samples.iter().map(|sample| (&sample.turns[..], &sample.goal[..], sample.ret)).collect();
        bencher.iter(|| model.credits_of(&trajectories).expect("good samples"));
    });
    group.bench_function("train", |bencher| {
        bencher.iter(|| model.train(&mut samples.as_slice(), 0, 0, &mut |_| ()).expect("good samples"));
    });
    group.finish();
}

criterion_group!(benches, turnrd);
criterion_main!(benches);
