//! Measures executed calls and generated tasks per second of BFCL's APIs on one thread.
//!
//! A call is parsed, executed and its result formatted.

#![allow(
    clippy::expect_used,
    missing_docs,
    reason = "a bench may fail, and its macros make undocumented items"
)]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use turnwise_core::{Action, Purpose, Seed, TaskSet as _, ToolCall};
use turnwise_env::bfcl::session::Session;
use turnwise_env::bfcl::{BfclDocuments, BfclGenerator, BfclOptions, BfclTasks};

fn settings() -> BfclGenerator {
    BfclGenerator { train: 300, valid: 0, test: 0, ..BfclGenerator::default() }
}

fn calls(criterion: &mut Criterion) {
    let package = settings().package().expect("the tasks are there");
    let count: usize = package.tasks.iter().map(|task| task.gold.concat().len()).sum();
    let mut group = criterion.benchmark_group("calls");
    group.throughput(Throughput::Elements(count as u64));
    group.bench_function("python", |bencher| {
        let sessions = || -> Vec<Session> {
            package.tasks.iter().map(|task| Session::new(package.scenario(task), "bench")).collect()
        };
        bencher.iter_batched_ref(
            sessions,
            |sessions| {
                for (session, task) in sessions.iter_mut().zip(&package.tasks) {
                    for call in task.gold.iter().flatten() {
                        black_box(session.execute(call));
                    }
                }
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

fn steps(criterion: &mut Criterion) {
    const STEPS: usize = 100;
    let options = BfclOptions { documents: BfclDocuments::Tools, max_steps: 1000, ..BfclOptions::default() };
    let set =
        BfclTasks::new(settings().package().expect("the tasks are there"), options).with_max_turns(1000);
    let task = set
        .tasks("train")
        .expect("the split is there")
        .into_iter()
        .find(|task| task.kind == "easy")
        .expect("an easy task");
    let call = ToolCall { id: String::new(), name: "ls".into(), arguments: serde_json::json!({"a": true}) };
    let mut environment = set.environment().expect("an environment");
    let mut group = criterion.benchmark_group("steps");
    group.throughput(Throughput::Elements(STEPS as u64));
    group.bench_function("tool calls", |bencher| {
        bencher.iter(|| {
            environment.reset(&task, Seed::derive(0, Purpose::Environment, &[])).expect("the task is there");
            for _ in 0..STEPS {
                black_box(environment.step(&Action::Call(call.clone())).expect("the episode goes on"));
            }
        });
    });
    group.finish();
}

fn tasks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tasks");
    group.sample_size(10);
    group.throughput(Throughput::Elements(300));
    group.bench_function("generated", |bencher| bencher.iter(|| black_box(settings().package())));
    group.finish();
}

criterion_group!(benches, calls, steps, tasks);
criterion_main!(benches);
