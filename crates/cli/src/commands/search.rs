use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use serde::Deserialize;
use turnwise_env::webshop::generator::{GeneratorConfig, products};
use turnwise_env::webshop::search::recording::record;
use turnwise_env::webshop::search::{BuildOptions, IndexBuilder, MANIFEST, SearchIndex, document_text};

use super::env::open;
use super::output::write_output;
use crate::ui::print;

const DOCUMENTS: [&str; 2] = ["documents.jsonl", "products_1000_documents.jsonl"];

/// Environments with a search engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Searchable {
    /// WebShop.
    Webshop,
}

#[derive(Args)]
pub(crate) struct SearchArgs {
    /// Environment to search.
    environment: Searchable,
    /// Queries: JSON lines with the key `query`, plain or zstd-compressed; may be a recording.
    #[arg(long, value_name = "FILE")]
    queries: PathBuf,
    /// Output file: JSON lines with query, tokens and hits (ASIN, position, score).
    #[arg(short = 'o', long = "output", value_name = "FILE", aliases = ["out", "dump"])]
    dump: PathBuf,
    /// Documents to search instead of a generated catalogue: JSON lines with `id` and `contents`, a
    /// folder with such a file, or an existing index.
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Maximum number of hits per query.
    #[arg(short = 'k', long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Seed for the generated catalogue.
    #[arg(long, default_value_t = 0, conflicts_with = "data")]
    seed: u64,
    /// Number of products in the generated catalogue.
    #[arg(long, value_name = "N", default_value_t = GeneratorConfig::default().products, conflicts_with = "data")]
    products: u32,
    /// Save the generated catalogue's index to this new or empty folder, for later use with
    /// `--data`.
    #[arg(long, value_name = "DIR", conflicts_with = "data")]
    index: Option<PathBuf>,
}

pub(crate) fn run(args: &SearchArgs) -> anyhow::Result<ExitCode> {
    let Searchable::Webshop = args.environment;
    let queries = open(&args.queries)?;
    let start = Instant::now();
    let index = match &args.data {
        None => generated(args)?,
        Some(path) => index_of(path)?,
    };
    let opened = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let count = write_output("--output", &args.dump, |file| {
        let mut out = BufWriter::new(file);
        let count = record(&args.queries.display().to_string(), queries, &index, args.limit, &mut out)?;
        out.flush()?;
        Ok(count)
    })?;
    print(&format!(
        "{count} queries in {:.3} s on {} products (index ready after {opened:.2} s): {}",
        start.elapsed().as_secs_f64(),
        index.len(),
        args.dump.display()
    ));
    Ok(ExitCode::SUCCESS)
}

fn generated(args: &SearchArgs) -> anyhow::Result<SearchIndex> {
    let config = GeneratorConfig { seed: args.seed, products: args.products };
    let pairs = products(config).map(|product| {
        let text = document_text(&product);
        (product.asin, text)
    });
    Ok(match &args.index {
        None => SearchIndex::build_in_memory(pairs)?,
        Some(folder) => SearchIndex::create(folder, pairs, BuildOptions::default())?,
    })
}

fn index_of(path: &Path) -> anyhow::Result<SearchIndex> {
    if path.join(MANIFEST).is_file() {
        return Ok(SearchIndex::open(path)?);
    }
    if !path.is_dir() {
        return index_documents(path);
    }
    let names = DOCUMENTS.iter().flat_map(|name| [(*name).to_owned(), format!("{name}.zst")]);
    match names.map(|name| path.join(name)).find(|file| file.is_file()) {
        Some(file) => index_documents(&file),
        None => bail!(
            "--data {}: neither {} (nor compressed as .zst) nor a finished index ({MANIFEST})",
            path.display(),
            DOCUMENTS.join(" nor ")
        ),
    }
}

fn index_documents(path: &Path) -> anyhow::Result<SearchIndex> {
    #[derive(Deserialize)]
    struct Document {
        id: String,
        contents: String,
    }
    let mut builder = IndexBuilder::in_memory()?;
    for (line, text) in turnwise_files::lines(open(path)?).enumerate() {
        let location = || format!("{}, line {}", path.display(), line + 1);
        let document: Document =
            serde_json::from_str(&text.with_context(location)?).with_context(location)?;
        builder.add(&document.id, &document.contents)?;
    }
    Ok(builder.finish()?)
}
