//! Measures a step of the search environment with a constant retriever.
//!
//! The goal is less than 50 microseconds per step. Measures a step of each format with three
//! passages of 100 words, an answer, and for comparison a step with BM25 over the generated
//! encyclopaedia.

#![allow(
    clippy::expect_used,
    missing_docs,
    reason = "a bench may fail, and its macros make undocumented items"
)]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use turnwise_core::{Action, Environment as _, Purpose, Seed, TaskSet as _};
use turnwise_env::search::generator::{SearchGenerator, generate};
use turnwise_env::search::{ObservationFormat, Question, SearchOptions, SearchSet};
use turnwise_retrieval::{Bm25Retriever, Hit, Passage, RetrievalError, Retriever};

struct Given(Vec<Hit>);

impl Retriever for Given {
    fn search(&self, queries: &[&str], _: usize) -> Result<Vec<Vec<Hit>>, RetrievalError> {
        Ok(queries.iter().map(|_| self.0.clone()).collect())
    }
}

const SEARCHES: u64 = 3;

fn episodes(criterion: &mut Criterion, name: &str, set: &SearchSet, query: &str) {
    let mut group = criterion.benchmark_group("search");
    group.throughput(Throughput::Elements(SEARCHES + 1));
    let tasks = set.tasks("test").expect("the split is there");
    let search = Action::from(format!("<search> {query} </search>"));
    let answer = Action::from("<answer> nobody </answer>");
    let mut environment = set.search();
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            environment
                .reset(&tasks[0], Seed::derive(0, Purpose::Environment, &[]))
                .expect("the task is there");
            for _ in 0..SEARCHES {
                black_box(environment.step(&search).expect("the search is done"));
            }
            black_box(environment.step(&answer).expect("the episode ends"));
        });
    });
}

fn steps(criterion: &mut Criterion) {
    let words = "and the town by the river has a theatre that was built in the year of the flood ".repeat(6);
    let hit = |number: usize| {
        let contents = format!("\"Passage {number}\"\n{words}");
        Hit { passage: Arc::new(Passage { id: number.to_string(), contents }), score: 1.0 }
    };
    let hits: Vec<Hit> = (0..3).map(hit).collect();
    for (name, format) in
        [("search_r1", ObservationFormat::SearchR1), ("verl_agent", ObservationFormat::VerlAgent)]
    {
        let golden = (0..5).map(|number| format!("Golden Answer {number}")).collect();
        let question = Question { text: "Who built it?".into(), golden, ..Question::default() };
        let options = SearchOptions { format, ..SearchOptions::default() };
        let set =
            SearchSet::new([Vec::new(), Vec::new(), vec![question]], Arc::new(Given(hits.clone())), options);
        episodes(criterion, name, &set.with_max_steps(8), "who built the theatre");
    }
    let made = generate(&SearchGenerator::default()).expect("the encyclopaedia is made");
    let retriever = Arc::new(Bm25Retriever::in_memory(made.passages).expect("it is indexed"));
    let set = SearchSet::new(made.splits, retriever, SearchOptions::default()).with_max_steps(8);
    let query = set.question(&set.split("test").expect("it is there")[0].id).expect("it is there").plan[0]
        .query
        .clone();
    episodes(criterion, "with BM25 over 5,300 passages", &set, &query);
}

criterion_group!(benches, steps);
criterion_main!(benches);
