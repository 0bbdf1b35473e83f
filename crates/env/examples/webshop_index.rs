//! Measures time and memory for indexing a large generated catalogue on disk.
//!
//! Run: `cargo run --release -p turnwise-env --example webshop_index -- DIR [PRODUCTS]`. The folder
//! must be new or empty; it contains the index afterwards. Peak memory is measured on Linux only.

#![allow(clippy::print_stdout, reason = "an example prints what it measured")]

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use turnwise_env::webshop::generator::{GeneratorConfig, product, products};
use turnwise_env::webshop::search::{BuildOptions, SearchIndex, document_text};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("usage: webshop_index DIR [PRODUCTS]")?);
    let count: u32 = arguments.next().map_or(Ok(1_000_000), |number| number.parse())?;

    let start = Instant::now();
    let pairs = products(GeneratorConfig { seed: 0, products: count }).map(|product| {
        let text = document_text(&product);
        (product.asin, text)
    });
    drop(SearchIndex::create(&folder, pairs, BuildOptions::default())?);
    println!("{count} products generated and indexed in {:.1} s", start.elapsed().as_secs_f64());
    if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
        status
            .lines()
            .filter(|line| line.starts_with("VmHWM"))
            .for_each(|line| println!("peak memory: {line}"));
    }

    let start = Instant::now();
    let index = SearchIndex::open(&folder)?;
    println!("{} products opened in {:.3} s", index.len(), start.elapsed().as_secs_f64());

    let queries: Vec<String> = (0..200)
        .map(|number| product(0, number * 4).instruction.unwrap_or_default().to_lowercase())
        .collect();
    let start = Instant::now();
    for query in &queries {
        index.search(query, 50)?;
    }
    println!("{:.0} queries/s, top 50, one thread", queries.len() as f64 / start.elapsed().as_secs_f64());
    Ok(())
}
