//! Measures queries per second of WebShop's search, and products per second of its generator and
//! indexer.
//!
//! Queries have three to eight words; each search returns 50 products. The 1,000 products are
//! generated. If `TURNWISE_DATA` names the data, the official ones with recorded queries are
//! measured too.

#![allow(
    clippy::expect_used,
    missing_docs,
    reason = "a bench may fail, and its macros make undocumented items"
)]

use std::hint::black_box;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use turnwise_env::webshop::generator::{GeneratorConfig, product, products};
use turnwise_env::webshop::search::{SearchIndex, document_text};

fn short(query: &str) -> bool {
    (3..=8).contains(&query.split_whitespace().count())
}

fn lines(path: &Path) -> Vec<serde_json::Value> {
    let decoder = zstd::Decoder::new(std::fs::File::open(path).expect("the file is there")).expect("zstd");
    let lines = BufReader::new(decoder).lines();
    lines.map(|line| serde_json::from_str(&line.expect("text")).expect("json")).collect()
}

fn text(value: &serde_json::Value, key: &str) -> String {
    value[key].as_str().expect("a string").to_owned()
}

fn searches(c: &mut Criterion) {
    let mut group = c.benchmark_group("webshop");
    let config = GeneratorConfig { seed: 0, products: 1000 };
    let pairs: Vec<(String, String)> =
        products(config).map(|product| (product.asin.clone(), document_text(&product))).collect();
    let mut worlds = vec![(
        "generated",
        SearchIndex::build_in_memory(pairs.iter().map(|(asin, text)| (asin, text))).expect("it builds"),
        products(config)
            .filter_map(|product| product.human_instructions.into_iter().next())
            .map(|human| human.text)
            .filter(|query| short(query))
            .take(200)
            .collect::<Vec<String>>(),
    )];
    if let Some(folder) = std::env::var_os("TURNWISE_DATA") {
        let folder = Path::new(&folder).join("webshop");
        let documents = lines(&folder.join("products_1000_documents.jsonl.zst"));
        let pairs = documents.iter().map(|document| (text(document, "id"), text(document, "contents")));
        let queries = lines(&folder.join("bm25_reference.jsonl.zst"));
        let queries = queries.iter().map(|line| text(line, "query")).filter(|query| short(query)).collect();
        worlds.push(("official", SearchIndex::build_in_memory(pairs).expect("it builds"), queries));
    }
    for (name, index, queries) in &worlds {
        group.throughput(Throughput::Elements(queries.len() as u64));
        group.bench_function(format!("search/1000-{name}"), |bencher| {
            bencher.iter(|| {
                for query in queries {
                    black_box(index.search(query, 50).expect("it searches"));
                }
            });
        });
    }
    group.throughput(Throughput::Elements(1));
    let mut number = 0;
    group.bench_function("generate/product", |bencher| {
        bencher.iter(|| {
            number += 1;
            product(7, number)
        });
    });
    group.sample_size(10).throughput(Throughput::Elements(1000));
    group.bench_function("index/1000-generated", |bencher| {
        bencher.iter(|| SearchIndex::build_in_memory(pairs.iter().map(|(asin, text)| (asin, text))));
    });
    group.finish();
}

criterion_group!(benches, searches);
criterion_main!(benches);
