use std::cell::Cell;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Context as _, bail};
use clap::Args;
use turnwise_retrieval::RetrievalError;
use turnwise_retrieval::build::{BM25, BuildFolder, BuildProgress, DENSE, PASSAGES, Parts, Watch, build};
use turnwise_retrieval::dense::{
    DenseOptions, GraphOptions, Precision, build_graph, build_vectors, check_graphs_are_built_in,
};
use turnwise_retrieval::lucene::BuildOptions;

use crate::ui::{INTERRUPTED, Meter, print, stop_on_interrupt};

#[derive(Args)]
pub(crate) struct BuildArgs {
    /// Index folder; created if missing.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Passage files (plain, gzip or zstd): JSON lines with `id` and `contents` (title, newline,
    /// text) [default: the passages already in the folder].
    #[arg(long, value_name = "FILE", num_args = 1..)]
    passages: Vec<PathBuf>,
    /// Also build vectors with this text encoder (model folder; E5 or sentence-transformers).
    #[arg(long, value_name = "DIR")]
    encoder: Option<PathBuf>,
    /// Build only vectors, without a BM25 index.
    #[arg(long, requires = "encoder")]
    without_terms: bool,
    /// Also build an HNSW graph over the vectors, for `--approximate` in `index query` and
    /// `index serve`. Without `--encoder`, the graph is built over the folder's existing vectors.
    #[arg(long)]
    approximate: bool,
    /// Number of neighbours per vector in the graph (HNSW's M); a higher number is more accurate
    /// but slower.
    #[arg(long, value_name = "N", default_value_t = GraphOptions::default().neighbours, requires = "approximate")]
    neighbours: usize,
    /// Number of candidates considered while building the graph (efConstruction).
    #[arg(long, value_name = "N", default_value_t = GraphOptions::default().construction, requires = "approximate")]
    construction: usize,
    /// Number of candidates considered while searching the graph (efSearch).
    #[arg(long, value_name = "N", default_value_t = GraphOptions::default().search, requires = "approximate")]
    candidates: usize,
    #[command(flatten)]
    encoding: super::Encoding,
    /// Store vectors as f32 instead of f16.
    #[arg(long, requires = "encoder")]
    f32_vectors: bool,
    /// Megabytes of term postings to keep in memory before they are written to disk.
    #[arg(long, value_name = "MB", default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    memory: u64,
}

pub(crate) fn run(args: &BuildArgs) -> anyhow::Result<ExitCode> {
    let stop = stop_on_interrupt()?;
    let graph = args.graph()?;
    // A wrong folder must not cost the time to read the passages.
    let encoder = args.encoder.as_ref().map(|path| args.encoding.load(path)).transpose()?;
    let folder = BuildFolder::open(&args.folder)?;
    let start = Instant::now();
    let watched = |name: &'static str, work: &dyn Fn(Watch<'_>) -> Result<BuildProgress, RetrievalError>| {
        let mut meter = Meter::new(name);
        let start = Instant::now();
        let done = work(&mut |progress| {
            meter.show(progress.read, progress.length, &message(progress, &start));
            if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        meter.finish();
        done
    };
    let options = BuildOptions { memory: (args.memory << 20) as usize };
    let parts = if args.without_terms { Parts::Passages } else { Parts::Bm25 };
    let complete = args.passages.is_empty()
        && args.folder.join(PASSAGES).is_dir()
        && (args.without_terms || args.folder.join(BM25).is_dir());
    let vectors_only = encoder.is_some() || (graph.is_some() && args.folder.join(DENSE).is_dir());
    let mut built = Ok(BuildProgress::default());
    if !complete || !vectors_only {
        built = watched("index", &|watch| build(&folder, &args.passages, parts, options, watch));
    }
    if let (Ok(_), Some(encoder)) = (&built, &encoder) {
        let precision = if args.f32_vectors { Precision::F32 } else { Precision::F16 };
        let options = DenseOptions { precision };
        built = watched("encode", &|watch| build_vectors(&folder, encoder, options, watch));
    }
    if let (Ok(progress), Some(options)) = (&built, graph) {
        let (progress, recall) = (*progress, Cell::new(0.0));
        built = watched("graph", &|watch| {
            let (vectors, found) = build_graph(&folder, options, watch)?;
            recall.set(found);
            Ok(if progress.passages == 0 { vectors } else { progress })
        });
        if built.is_ok() {
            print(&format!(
                "graph: {:.1} % of the ten nearest vectors are found by it",
                100.0 * recall.get()
            ));
        }
    }
    let built = match built {
        Err(RetrievalError::Interrupted) => {
            let made = args.folder.join(PASSAGES).is_dir();
            print(if made && !args.passages.is_empty() {
                "Stopped. The passages are indexed: the same command without --passages goes on with the vectors that are made; \
                 a graph starts again."
            } else {
                "Stopped. The same command goes on with the vectors that are made; passages, terms and graphs start again."
            });
            return Ok(ExitCode::from(INTERRUPTED));
        }
        built => built?,
    };
    let seconds = start.elapsed().as_secs_f64();
    print(&format!(
        "{}: {} passages ({:.1} MB of text) in {seconds:.1} s, {:.1} MB/s",
        args.folder.display(),
        built.passages,
        built.bytes as f64 / 1e6,
        built.bytes as f64 / 1e6 / seconds.max(1e-9)
    ));
    Ok(ExitCode::SUCCESS)
}

impl BuildArgs {
    fn graph(&self) -> anyhow::Result<Option<GraphOptions>> {
        if !self.approximate {
            return Ok(None);
        }
        check_graphs_are_built_in()?;
        if self.encoder.is_none() && !self.folder.join(DENSE).is_dir() {
            bail!(
                "--approximate: {} has no vectors yet; name their encoder with --encoder",
                self.folder.display()
            );
        }
        let options = GraphOptions {
            neighbours: self.neighbours,
            construction: self.construction,
            search: self.candidates,
        };
        options.check().map(|()| Some(options)).context("--approximate")
    }
}

fn message(progress: BuildProgress, start: &Instant) -> String {
    if progress.joining {
        return format!("{} passages read, joining their terms", progress.passages);
    }
    let rate = progress.bytes as f64 / 1e6 / start.elapsed().as_secs_f64().max(1e-3);
    format!("{} passages  {rate:.1} MB/s", progress.passages)
}
