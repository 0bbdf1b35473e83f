//! Time, memory and disk space of BM25 over many passages.
//!
//! Run: `cargo run --release -p turnwise-retrieval --example wiki_scale -- DIR [PASSAGES |
//! FILE.jsonl]`. DIR must be new or empty; it keeps the generated file and the index. Peak memory
//! is measured on Linux only.

#![allow(clippy::print_stdout, reason = "an example prints what it measured")]

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use turnwise_retrieval::build::{BuildFolder, Parts, build};
use turnwise_retrieval::lucene::BuildOptions;
use turnwise_retrieval::{Bm25Retriever, Retriever as _};

mod generated;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("usage: wiki_scale DIR [PASSAGES | FILE.jsonl]")?);
    let what = arguments.next().unwrap_or_else(|| "1000000".to_owned());
    fs::create_dir_all(&folder)?;
    let file = match what.parse::<u64>() {
        Err(_) => PathBuf::from(&what),
        Ok(count) => {
            let file = folder.join("passages.jsonl");
            let mut out = BufWriter::new(File::create_new(&file)?);
            for passage in generated::passages(count) {
                let line = serde_json::json!({"id": passage.id, "contents": passage.contents});
                writeln!(out, "{line}")?;
            }
            out.flush()?;
            file
        }
    };
    let index = folder.join("index");
    let start = Instant::now();
    let mut joining = None;
    let built =
        build(&BuildFolder::open(&index)?, &[file], Parts::Bm25, BuildOptions::default(), &mut |progress| {
            if progress.joining {
                joining = Some(start.elapsed().as_secs_f64());
            }
            ControlFlow::Continue(())
        })?;
    let seconds = start.elapsed().as_secs_f64();
    let megabytes = built.bytes as f64 / 1e6;
    println!(
        "{} passages, {megabytes:.0} MB, in {seconds:.1} s ({:.1} s of it joining): {:.1} MB/s, {:.0} passages/s",
        built.passages,
        seconds - joining.unwrap_or(seconds),
        megabytes / seconds,
        built.passages as f64 / seconds
    );
    memory("after building");
    for part in ["passages", "bm25"] {
        println!("{part}: {:.0} MB on disk", size(&index.join(part))? as f64 / 1e6);
    }

    let start = Instant::now();
    let retriever = Bm25Retriever::open(&index)?;
    println!("opened in {:.3} s", start.elapsed().as_secs_f64());
    let queries = generated::queries(1000);
    for round in ["first", "second"] {
        let start = Instant::now();
        let mut slowest = 0.0f64;
        for query in &queries {
            let one = Instant::now();
            retriever.search(&[query], 3)?;
            slowest = slowest.max(one.elapsed().as_secs_f64());
        }
        let rate = queries.len() as f64 / start.elapsed().as_secs_f64();
        println!("{round} round: {rate:.0} queries/s, top 3, one thread; slowest {:.1} ms", slowest * 1e3);
    }
    memory("after searching");
    Ok(())
}

fn size(folder: &Path) -> std::io::Result<u64> {
    fs::read_dir(folder)?.map(|entry| entry?.metadata().map(|data| data.len())).sum()
}

fn memory(when: &str) {
    if let Ok(status) = fs::read_to_string("/proc/self/status") {
        for line in status.lines().filter(|line| line.starts_with("VmHWM") || line.starts_with("RssAnon")) {
            println!("{when}: {line}");
        }
    }
}
