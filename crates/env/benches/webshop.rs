//! Measures steps per second of WebShop, including pages, admissible actions and progress.
//!
//! Plays with 1,000 generated products and, if `TURNWISE_DATA` names the data, with the official
//! 1,000. `clicks` clicks randomly on the first ten results of one search. In
//! `one search in three`, every third step searches for the words of another goal.

#![allow(
    clippy::expect_used,
    missing_docs,
    reason = "a bench may fail, and its macros make undocumented items"
)]

use std::hint::black_box;
use std::path::PathBuf;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use turnwise_core::{Action, Environment as _, Observation, Purpose, Rng, Seed};
use turnwise_env::webshop::generator::GeneratorConfig;
use turnwise_env::webshop::{WebshopEnv, WebshopOptions, WebshopSet};

const STEPS: usize = 60;

/// Returns a random click that neither buys nor leaves the first result page. Every fourth click
/// goes back, so that products with many options do not dominate.
fn click(observation: &Observation, rng: &mut Rng) -> String {
    const LEAVES: [&str; 3] = ["click[buy now]", "click[back to search]", "click[next >]"];
    let back = "click[< prev]";
    if rng.below(4) == 0 && observation.admissible.iter().any(|action| action == back) {
        return back.to_owned();
    }
    let stays = |action: &&String| !LEAVES.contains(&action.as_str());
    let actions: Vec<&String> = observation.admissible.iter().filter(stays).collect();
    (*rng.choose(&actions).expect("every page has something to click")).clone()
}

fn query(set: &WebshopSet, rng: &mut Rng) -> String {
    let goal = set.goal(rng.below(set.len())).expect("the goal is there");
    let words = goal.instruction.split(" with ").next().unwrap_or_default();
    format!("search[{}]", words.trim_start_matches("Find me "))
}

fn walk(
    environment: &mut WebshopEnv,
    mut observation: Observation,
    searches: &[String],
    rng: &mut Rng,
) -> Observation {
    for step in 0..STEPS {
        let action = if !searches.is_empty() && step % 3 == 0 {
            searches[rng.below(searches.len())].clone()
        } else {
            click(&observation, rng)
        };
        observation =
            black_box(environment.step(&Action::from(&action)).expect("the walk has no end")).observation;
    }
    observation
}

fn steps(c: &mut Criterion) {
    let mut sets = vec![(
        "generated",
        WebshopSet::generated(GeneratorConfig { seed: 0, products: 1000 }, &WebshopOptions::default())
            .expect("the generated shop opens"),
    )];
    if let Some(folder) =
        std::env::var_os("TURNWISE_DATA").map(|folder| PathBuf::from(folder).join("webshop"))
    {
        let set = WebshopSet::open(&folder, None, &WebshopOptions::default()).expect("the data loads");
        sets.push(("official", set));
    }
    let mut group = c.benchmark_group("webshop");
    group.throughput(Throughput::Elements(STEPS as u64));
    for (name, set) in sets {
        let set = set.with_max_steps(usize::MAX);
        let mut rng = Seed::derive(0, Purpose::Rollout, &[]).rng();
        let searches: Vec<String> = (0..64).map(|_| query(&set, &mut rng)).collect();
        let task = set.task(0).expect("there is a goal");
        for (what, searches) in [("clicks", &searches[..0]), ("one search in three", &searches[..])] {
            let mut environment = set.webshop();
            environment.reset(&task, Seed::derive(0, Purpose::Environment, &[])).expect("the goal starts");
            let first = environment
                .step(&Action::from(&query(&set, &mut rng)))
                .expect("a search is a step")
                .observation;
            let mut observation = Some(first);
            group.bench_function(format!("{what}/{name}"), |bencher| {
                bencher.iter(|| {
                    let before = observation.take().unwrap_or_default();
                    observation = Some(walk(&mut environment, before, searches, &mut rng));
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, steps);
criterion_main!(benches);
