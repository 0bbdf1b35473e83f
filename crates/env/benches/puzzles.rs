//! Measures steps, pictures and generated levels per second of Sokoban and EZPoints on one thread.
//!
//! A step is a call of `Environment::step` with a text observation. Levels are generated and
//! solved.

#![allow(
    clippy::expect_used,
    missing_docs,
    reason = "a bench may fail, and its macros make undocumented items"
)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use turnwise_core::{Action, Environment, Purpose, Seed, Task, TaskSet as _};
use turnwise_env::ezpoints;
use turnwise_env::ezpoints::cards::Deal;
use turnwise_env::ezpoints::formula::Symbol;
use turnwise_env::ezpoints::game::Game;
use turnwise_env::ezpoints::picture::Cards;
use turnwise_env::ezpoints::{EzPointsGenerator, EzPointsReward, EzPointsSet};
use turnwise_env::pictures::png;
use turnwise_env::sokoban::generator::{Generator, GeneratorConfig};
use turnwise_env::sokoban::picture::Tiles;
use turnwise_env::sokoban::room::RoomText;
use turnwise_env::sokoban::solver::Solver;
use turnwise_env::sokoban::{SokobanOptions, SokobanSet};

const STEPS: usize = 100;

fn reset(environment: &mut dyn Environment, task: &Task) {
    environment.reset(task, Seed::derive(0, Purpose::Environment, &[])).expect("the task is there");
}

fn walk(environment: &mut dyn Environment, tasks: &[Task], actions: &[Action]) {
    let mut next = 0;
    reset(environment, &tasks[0]);
    for step in 0..STEPS {
        let outcome = environment.step(&actions[step % actions.len()]).expect("the episode goes on");
        if outcome.terminated || outcome.truncated {
            next += 1;
            reset(environment, &tasks[next % tasks.len()]);
        }
        black_box(outcome);
    }
}

fn steps(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("steps");
    group.throughput(Throughput::Elements(STEPS as u64));
    let mut rng = Seed::derive(0, Purpose::Demonstration, &[]).rng();
    let config = GeneratorConfig { min_boxes: 2, max_boxes: 2, ..GeneratorConfig::default() };
    let words = ["up", "down", "left", "right"];
    let moves: Vec<Action> = (0..997).map(|_| Action::from(words[rng.below(4)])).collect();
    for (name, text) in [("verl-agent", RoomText::VerlAgent), ("ragen", RoomText::Ragen)] {
        let options = SokobanOptions { text, ..SokobanOptions::default() };
        let set = SokobanSet::new(&config, None, options, None).expect("the levels are there");
        let tasks = set.tasks("train").expect("the split is there");
        let mut environment = set.sokoban();
        group.bench_function(format!("sokoban {name}"), |bencher| {
            bencher.iter(|| walk(&mut environment, &tasks, &moves));
        });
    }
    let set = EzPointsSet::new(&EzPointsGenerator::default(), None, EzPointsReward::Original, None)
        .expect("the deals are there");
    let tasks = set.tasks("train").expect("the split is there");
    let symbols = turnwise_env::ezpoints::game::ACTIONS.map(Action::from);
    let mut environment = set.ezpoints();
    group.bench_function("ezpoints", |bencher| bencher.iter(|| walk(&mut environment, &tasks, &symbols)));
    group.finish();
}

fn pictures(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pictures");
    group.throughput(Throughput::Elements(1));
    let level = Generator::default().level(&GeneratorConfig::default(), 0).expect("there is a level");
    let tiles = Tiles::own();
    group.bench_function("sokoban drawn", |bencher| bencher.iter(|| tiles.render(black_box(&level.room))));
    group.bench_function("sokoban drawn and PNG", |bencher| {
        bencher.iter(|| png::encode(&tiles.render(black_box(&level.room))).expect("a picture"));
    });
    let cards = Cards::own();
    // All states on the way to both numbers of each deal, ordered so that consecutive pictures are
    // of different deals.
    let mut games: Vec<Game> = Vec::new();
    for length in 0..4 {
        for deal in Deal::all() {
            let [left, right] = deal.numbers();
            let mut game = Game::new(deal);
            for symbol in [Symbol::Number(left), Symbol::Plus, Symbol::Number(right)].into_iter().take(length)
            {
                game.act(ezpoints::game::Action::Add(symbol));
            }
            games.push(game);
        }
    }
    let mut next = 0;
    let mut game = || {
        next = (next + 1) % games.len();
        black_box(&games[next])
    };
    group.bench_function("ezpoints drawn", |bencher| bencher.iter(|| cards.render(game())));
    group.bench_function("ezpoints drawn and PNG", |bencher| {
        bencher.iter(|| cards.png(game()).expect("a picture"));
    });
    group.finish();
}

fn levels(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("levels");
    group.throughput(Throughput::Elements(1));
    let mut generator = Generator::default();
    for boxes in [1, 2, 3] {
        let config = GeneratorConfig { min_boxes: boxes, max_boxes: boxes, ..GeneratorConfig::default() };
        let mut index = 0;
        group.bench_function(format!("{boxes} boxes, generated and solved"), |bencher| {
            bencher.iter(|| {
                index += 1;
                black_box(generator.level(&config, index).expect("there is a level"))
            });
        });
    }
    let config = GeneratorConfig { min_boxes: 2, max_boxes: 2, ..GeneratorConfig::default() };
    let rooms: Vec<_> =
        (0..64).map(|index| generator.level(&config, index).expect("there is a level").room).collect();
    let (mut solver, mut next) = (Solver::default(), 0);
    group.bench_function("2 boxes, solved", |bencher| {
        bencher.iter(|| {
            next = (next + 1) % rooms.len();
            black_box(solver.solve(&rooms[next]))
        });
    });
    group.finish();
}

criterion_group!(benches, steps, pictures, levels);
criterion_main!(benches);
