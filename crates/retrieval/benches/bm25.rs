//! Queries per second of BM25, and megabytes per second of building the index, on one thread.
//!
//! With `TURNWISE_DATA`: 8,632 real passages and 3,011 real queries, three passages each. Always:
//! 20,000 generated passages. `RAYON_NUM_THREADS=1` also limits the build to one thread.

#![allow(
    clippy::expect_used,
    missing_docs,
    reason = "a bench may fail, and its macros make undocumented items"
)]

use std::hint::black_box;
use std::io::BufRead as _;
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use turnwise_retrieval::build::read_passages;
use turnwise_retrieval::{Bm25Retriever, Passage, Retriever as _};

#[path = "../examples/generated/mod.rs"]
mod generated;

fn worlds() -> Vec<(&'static str, Vec<Passage>, Vec<String>)> {
    let passages: Vec<Passage> = generated::passages(20_000).collect();
    let queries = generated::queries(500);
    let mut worlds = vec![("generated", passages, queries)];
    if let Some(folder) = std::env::var_os("TURNWISE_DATA") {
        let folder = Path::new(&folder).join("qa/wiki18");
        let passages = read_passages(&folder.join("passages.jsonl.zst")).expect("passages");
        let lines = turnwise_files::open(&folder.join("retrievals.jsonl.zst")).expect("queries").lines();
        let query = |line: String| {
            let value: serde_json::Value = serde_json::from_str(&line).expect("json");
            value["query"].as_str().expect("a text").to_owned()
        };
        worlds.push(("wiki18", passages, lines.map(|line| query(line.expect("text"))).collect()));
    }
    worlds
}

fn searches(c: &mut Criterion) {
    let mut group = c.benchmark_group("bm25");
    for (name, passages, queries) in worlds() {
        let bytes = passages.iter().map(|passage| passage.id.len() + passage.contents.len()).sum::<usize>();
        let retriever = Bm25Retriever::in_memory(passages.clone()).expect("it builds");
        group.sample_size(10).throughput(Throughput::Elements(queries.len() as u64));
        group.bench_function(format!("search/{name}"), |bencher| {
            bencher.iter(|| {
                for query in &queries {
                    black_box(retriever.search(&[query], 3).expect("it searches"));
                }
            });
        });
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(format!("build/{name}"), |bencher| {
            bencher.iter(|| Bm25Retriever::in_memory(passages.iter().cloned()).expect("it builds"));
        });
    }
    group.finish();
}

criterion_group!(benches, searches);
criterion_main!(benches);
