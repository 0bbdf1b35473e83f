//! Measures steps per second of the ALFWorld engine, including the list of admissible commands.
//!
//! Plays random admissible commands in the kitchen of the tests and, if `TURNWISE_DATA` names the
//! data, in the official games.

#![allow(
    clippy::expect_used,
    missing_docs,
    reason = "a bench may fail, and its macros make undocumented items"
)]

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use turnwise_core::{Purpose, Seed};
use turnwise_env::alfworld::{AlfworldSet, Episode, Game};

#[path = "../tests/it/alfworld/kitchen.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod kitchen;

const STEPS: usize = 50;

fn play(game: &Arc<Game>, seed: u64) -> usize {
    let mut rng = Seed::derive(seed, Purpose::Rollout, &[]).rng();
    let mut episode = Episode::new(Arc::clone(game));
    let mut commands = episode.admissible();
    let mut bytes = 0;
    for _ in 0..STEPS {
        let command = &commands[rng.below(commands.len())];
        black_box(episode.step(command));
        bytes += episode.observation().len();
        commands = episode.admissible();
    }
    bytes
}

fn steps(c: &mut Criterion) {
    let mut group = c.benchmark_group("alfworld");
    group.throughput(Throughput::Elements(STEPS as u64));
    let text = kitchen::file(kitchen::TWO);
    let game = Arc::new(Game::parse("games/kitchen/1/game.tw-pddl", &text).expect("the kitchen is a game"));
    let mut seed = 0;
    group.bench_function("steps/kitchen", |bencher| {
        bencher.iter(|| {
            seed += 1;
            play(&game, seed)
        });
    });
    if let Some(folder) =
        std::env::var_os("TURNWISE_DATA").map(|folder| PathBuf::from(folder).join("alfworld"))
    {
        let (set, _) = AlfworldSet::load_splits(&folder, &["valid_unseen"]).expect("the data loads");
        let games = set.split("valid_unseen").expect("the split was loaded");
        group.bench_function("steps/valid_unseen", |bencher| {
            bencher.iter(|| {
                seed += 1;
                play(&games[seed as usize % games.len()], seed)
            });
        });
    }
    group.throughput(Throughput::Elements(1));
    group.bench_function("parse/kitchen", |bencher| {
        bencher.iter(|| Game::parse("games/kitchen/1/game.tw-pddl", black_box(&text)));
    });
    group.finish();
}

criterion_group!(benches, steps);
criterion_main!(benches);
