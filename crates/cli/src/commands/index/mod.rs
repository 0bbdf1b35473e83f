mod build;
mod query;
mod serve;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use turnwise_model::Compute;
use turnwise_retrieval_service::{OpenRetriever, PrefixedEncoder, RetrievalConfig, RetrieverKind, open};

/// Build, query and serve passage indexes.
#[derive(Args)]
pub(crate) struct IndexArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build an index from JSON lines with passages (`{"id", "contents"}`), as in wiki-18.
    Build(build::BuildArgs),
    /// Query an index with one query or a file of queries.
    Query(query::QueryArgs),
    /// Serve an index over HTTP: `POST /retrieve`, compatible with Search-R1.
    Serve(serve::ServeArgs),
}

#[derive(Args)]
struct Encoding {
    /// Text before each encoded query [default: the existing vectors' prefix, else `query: `].
    #[arg(long, value_name = "TEXT", requires = "encoder")]
    query_prefix: Option<String>,
    /// Text before each encoded passage [default: the existing vectors' prefix, else `passage: `].
    #[arg(long, value_name = "TEXT", requires = "encoder")]
    passage_prefix: Option<String>,
    /// Maximum number of tokens per encoded text [default: the existing vectors' limit, else 256].
    #[arg(long, value_name = "N", requires = "encoder")]
    max_tokens: Option<usize>,
    /// Run the encoder in bf16, which is several times faster on CPUs with AMX.
    #[arg(long, requires = "encoder")]
    bf16: bool,
}

impl Encoding {
    fn config(&self) -> RetrievalConfig {
        RetrievalConfig {
            query_prefix: self.query_prefix.clone(),
            passage_prefix: self.passage_prefix.clone(),
            max_tokens: self.max_tokens,
            compute: if self.bf16 { Compute::Bf16 } else { Compute::F32 },
            ..RetrievalConfig::default()
        }
    }

    fn load(&self, folder: &Path) -> anyhow::Result<PrefixedEncoder> {
        PrefixedEncoder::load(folder, self.config().encoder_options(None))
            .with_context(|| format!("--encoder {}", folder.display()))
    }
}

/// How passages are retrieved from an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KindName {
    /// Term matching.
    Bm25,
    /// Vector search.
    Dense,
    /// BM25 and vector search, merged by reciprocal rank fusion.
    Hybrid,
}

#[derive(Args)]
struct SearchArgs {
    /// Retrieval method [default: bm25, or hybrid with --encoder].
    #[arg(long, value_enum)]
    kind: Option<KindName>,
    /// Encoder (model folder) that built the index's vectors.
    #[arg(long, value_name = "DIR")]
    encoder: Option<std::path::PathBuf>,
    /// Search with the HNSW graph of `index build --approximate`.
    #[arg(long, requires = "encoder")]
    approximate: bool,
    #[command(flatten)]
    encoding: Encoding,
}

impl SearchArgs {
    fn open(&self, folder: &Path, cache: usize) -> anyhow::Result<Arc<OpenRetriever>> {
        let kind = match (self.kind, &self.encoder) {
            (Some(KindName::Bm25), _) | (None, None) => RetrieverKind::Bm25,
            (Some(KindName::Dense), _) => RetrieverKind::Dense,
            (Some(KindName::Hybrid), _) | (None, Some(_)) => RetrieverKind::Hybrid,
        };
        if let (RetrieverKind::Bm25, Some(encoder)) = (kind, &self.encoder) {
            anyhow::bail!(
                "--encoder {}: words are looked up without one; leave it out, or name --kind dense or hybrid",
                encoder.display()
            );
        }
        let config = RetrievalConfig {
            kind,
            index: folder.to_owned(),
            encoder: self.encoder.clone().unwrap_or_default(),
            approximate: self.approximate,
            cache,
            ..self.encoding.config()
        };
        Ok(open(&config)?)
    }
}

pub(crate) fn run(args: IndexArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Build(args) => build::run(&args),
        Command::Query(args) => query::run(&args),
        Command::Serve(args) => serve::run(&args),
    }
}
