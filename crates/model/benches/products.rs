//! Matrix products of linear layers in f32 and in bf16, on one thread. `cargo bench --bench
//! products`.
//!
//! 2,048 rows, layers of the 5 M and the 25 M model of `benches/peer`. Elements are floating-point
//! operations, so `Gelem/s` are GFLOP/s.
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use turnwise_core::{Purpose, Seed};
use turnwise_model::Compute;

const ROWS: usize = 2048;

/// Name, inputs, outputs.
const LAYERS: [(&str, usize, usize); 5] = [
    ("5M gate and up", 256, 1408),
    ("5M down", 704, 256),
    ("5M output layer", 256, 2048),
    ("25M gate and up", 512, 2816),
    ("25M down", 1408, 512),
];

fn products(criterion: &mut Criterion) {
    let mut rng = Seed::derive(0, Purpose::World, &[]).rng();
    let mut random = |len: usize| -> Vec<f32> { (0..len).map(|_| rng.normal() as f32).collect() };
    let mut group = criterion.benchmark_group("products");
    group.sample_size(20);
    for (name, inputs, outputs) in LAYERS {
        let shape = [ROWS, inputs, outputs];
        let (x, weight, mut y) = (random(ROWS * inputs), random(outputs * inputs), random(ROWS * outputs));
        let d_y = random(ROWS * outputs);
        let (mut d_x, mut d_weight) = (random(ROWS * inputs), random(outputs * inputs));
        let operations = (2 * ROWS * inputs * outputs) as u64;
        for compute in [Compute::F32, Compute::Bf16] {
            let path = compute.path();
            group.throughput(Throughput::Elements(operations));
            group.bench_function(format!("{name}, forward, {path}"), |bencher| {
                bencher.iter(|| compute.linear(&x, &weight, &mut y, shape));
            });
            group.throughput(Throughput::Elements(2 * operations));
            group.bench_function(format!("{name}, backward, {path}"), |bencher| {
                bencher.iter(|| compute.linear_backward(&d_y, &x, &weight, &mut d_x, &mut d_weight, shape));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, products);
criterion_main!(benches);
