//! `turnwise index query`: what an index finds.

use std::io::{BufRead as _, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, bail};
use clap::Args;
use serde::Deserialize;
use serde_json::json;
use turnwise_retrieval::{Bm25Retriever, Hit, Retriever};

use crate::commands::env::open;
use crate::ui::print;

/// Queries of a file that are asked together.
const TOGETHER: usize = 256;

#[derive(Args)]
pub(crate) struct QueryArgs {
    /// Folder of the index.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The query.
    #[arg(required_unless_present = "queries", conflicts_with = "queries")]
    query: Option<String>,
    /// Queries instead: JSON lines with the key `query` (or `question`), as they are or compressed.
    #[arg(long, value_name = "FILE", requires = "out")]
    queries: Option<PathBuf>,
    /// File for the answers to `--queries`: JSON lines with the query and its hits (`id`, `score`).
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Passages per query.
    #[arg(short = 'k', long, value_name = "N", default_value_t = 3)]
    top_k: usize,
    /// Print JSON lines instead of text.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &QueryArgs) -> anyhow::Result<ExitCode> {
    let start = Instant::now();
    let retriever = Bm25Retriever::open(&args.folder)?;
    let opened = start.elapsed().as_secs_f64();
    if let (Some(queries), Some(out)) = (&args.queries, &args.out) {
        return answer_file(&retriever, queries, out, args.top_k, opened);
    }
    let query = args.query.as_deref().unwrap_or_default();
    let start = Instant::now();
    let found = retriever.search(&[query], args.top_k)?.into_iter().next().unwrap_or_default();
    let seconds = start.elapsed().as_secs_f64();
    for (rank, hit) in found.iter().enumerate() {
        let passage = &hit.passage;
        if args.json {
            print(&json!({"id": passage.id, "score": hit.score, "contents": passage.contents}).to_string());
        } else {
            print(&format!(
                "{}. {}  (id {}, score {:.4})\n   {}",
                rank + 1,
                passage.title(),
                passage.id,
                hit.score,
                passage.text()
            ));
        }
    }
    if !args.json {
        print(&format!(
            "{} passages in {:.1} ms (opened in {:.1} ms)",
            found.len(),
            seconds * 1e3,
            opened * 1e3
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// The queries of a file.
fn read_queries(path: &Path) -> anyhow::Result<Vec<String>> {
    #[derive(Deserialize)]
    struct Line {
        #[serde(alias = "question")]
        query: String,
    }
    let mut queries = Vec::new();
    for (number, text) in open(path)?.lines().enumerate() {
        let location = || format!("{}, line {}", path.display(), number + 1);
        let text = text.with_context(location)?;
        if text.trim().is_empty() {
            continue;
        }
        let line: Line = serde_json::from_str(&text).with_context(|| {
            format!("{}: every line is to be an object with the text `query`", location())
        })?;
        queries.push(line.query);
    }
    if queries.is_empty() {
        bail!("--queries {}: there is no query in it", path.display());
    }
    Ok(queries)
}

fn answer_file(
    retriever: &dyn Retriever,
    queries: &Path,
    out: &Path,
    top_k: usize,
    opened: f64,
) -> anyhow::Result<ExitCode> {
    let queries = read_queries(queries)?;
    let failed = || format!("--out {}", out.display());
    let mut file = BufWriter::new(std::fs::File::create(out).with_context(failed)?);
    let mut seconds = 0.0;
    for together in queries.chunks(TOGETHER) {
        let texts: Vec<&str> = together.iter().map(String::as_str).collect();
        let start = Instant::now();
        let answers = retriever.search(&texts, top_k)?;
        seconds += start.elapsed().as_secs_f64();
        for (query, hits) in texts.iter().zip(answers) {
            let hit = |hit: &Hit| json!({"id": hit.passage.id, "score": hit.score});
            let hits: Vec<_> = hits.iter().map(hit).collect();
            writeln!(file, "{}", json!({"query": query, "hits": hits})).with_context(failed)?;
        }
    }
    file.flush().with_context(failed)?;
    print(&format!(
        "{} queries in {seconds:.3} s, {:.0} queries/s (opened in {opened:.2} s): {}",
        queries.len(),
        queries.len() as f64 / seconds.max(1e-9),
        out.display()
    ));
    Ok(ExitCode::SUCCESS)
}
