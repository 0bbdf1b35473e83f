use std::ffi::OsString;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use serde::Deserialize;
use serde_json::json;
use turnwise_retrieval::{Hit, Retriever};
use turnwise_retrieval_service::{RequestKey, RetrievalConfig, RetrieverKind};

use crate::commands::credit::table::counted;
use crate::commands::env::open;
use crate::commands::output::{check_output_of, write_output};
use crate::ui::print;

const TOGETHER: usize = 256;

/// JSON key of the queries in a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum KeyName {
    /// The key that Search-R1's server expects.
    #[default]
    Queries,
    /// The key that clients in verl-agent and SkyRL send.
    Query,
}

#[derive(Args)]
pub(crate) struct QueryArgs {
    /// Index folder (omit with `--server`), then the query (omit with `--queries`).
    #[arg(value_name = "DIR] [QUERY", num_args = 0..=2)]
    words: Vec<OsString>,
    /// Query a server compatible with Search-R1, e.g. http://127.0.0.1:8000/retrieve; repeatable.
    #[arg(long, value_name = "URL", conflicts_with_all = ["kind", "encoder"])]
    server: Vec<String>,
    /// JSON key of the queries in requests to a server.
    #[arg(long, value_enum, default_value_t, requires = "server")]
    request_key: KeyName,
    /// Allow servers on other machines.
    #[arg(long, requires = "server")]
    allow_remote: bool,
    /// File with queries: JSON lines with the key `query` or `question`, plain or compressed.
    #[arg(long, value_name = "FILE", requires = "out")]
    queries: Option<PathBuf>,
    /// Output file for `--queries`: JSON lines with each query and its hits (`id`, `score`).
    #[arg(short = 'o', long = "output", value_name = "FILE", requires = "queries", alias = "out")]
    out: Option<PathBuf>,
    /// Number of passages returned per query.
    #[arg(short = 'k', long, value_name = "N", default_value_t = 3)]
    top_k: usize,
    #[command(flatten)]
    search: super::SearchArgs,
    /// Print JSON lines instead of text.
    #[arg(long, conflicts_with = "queries")]
    json: bool,
}

pub(crate) fn run(args: &QueryArgs) -> anyhow::Result<ExitCode> {
    let start = Instant::now();
    let mut words = args.words.iter();
    if let (Some(queries), Some(out)) = (&args.queries, &args.out) {
        check_output_of("--output", out, queries, "queries")?;
    }
    let retriever = if args.server.is_empty() {
        let folder = words.next().context("name the folder of an index, or a server with --server")?;
        // Uncached, so that the measured time is the search's.
        args.search.open(Path::new(folder), 0)?
    } else {
        let config = RetrievalConfig {
            kind: RetrieverKind::Http,
            servers: args.server.clone(),
            request_key: match args.request_key {
                KeyName::Queries => RequestKey::Queries,
                KeyName::Query => RequestKey::Query,
            },
            allow_remote: args.allow_remote,
            batch_queries: 1,
            cache: 0,
            ..RetrievalConfig::default()
        };
        turnwise_retrieval_service::open(&config)?
    };
    let opened = start.elapsed().as_secs_f64();
    if let (Some(queries), Some(out)) = (&args.queries, &args.out) {
        if let Some(query) = words.next() {
            bail!("a query ({}) and a file of them: name one or the other", query.display());
        }
        return answer_file(&*retriever, queries, out, args.top_k, opened);
    }
    let Some(query) = words.next() else {
        bail!("name a query, or a file of them with --queries and --output")
    };
    if let Some(more) = words.next() {
        bail!(
            "{}: is one word too many: put a query of several words in quotes; with --server there is no folder",
            more.display()
        );
    }
    let query = query.to_str().context("the query is not UTF-8")?;
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
            "{} in {:.1} ms (opened in {:.1} ms)",
            counted(found.len(), "passage", "passages"),
            seconds * 1e3,
            opened * 1e3
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn read_queries(path: &Path) -> anyhow::Result<Vec<String>> {
    #[derive(Deserialize)]
    struct Line {
        #[serde(alias = "question")]
        query: String,
    }
    let mut queries = Vec::new();
    for (number, text) in turnwise_files::lines(open(path)?).enumerate() {
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
    let mut seconds = 0.0;
    write_output("--output", out, |file| {
        let failed = || format!("--output {}", out.display());
        let mut file = BufWriter::new(file);
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
        file.flush().with_context(failed)
    })?;
    print(&format!(
        "{} queries in {seconds:.3} s, {:.0} queries/s (opened in {opened:.2} s): {}",
        queries.len(),
        queries.len() as f64 / seconds.max(1e-9),
        out.display()
    ));
    Ok(ExitCode::SUCCESS)
}
