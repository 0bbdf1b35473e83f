//! `turnwise index build`: from a file of passages to a folder that is searched.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Instant;

use clap::Args;
use turnwise_retrieval::RetrievalError;
use turnwise_retrieval::build::{BM25, BuildFolder, BuildProgress, PASSAGES, Parts, Watch, build};
use turnwise_retrieval::dense::{DenseOptions, Precision, build_vectors};
use turnwise_retrieval::lucene::BuildOptions;

use crate::ui::{INTERRUPTED, Meter, print, stop_on_interrupt};

#[derive(Args)]
pub(crate) struct BuildArgs {
    /// Folder of the index; it is made if it is missing.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Passages: JSON lines with `id` and `contents` (the title, a newline, the text), plain, gzip or zstd; several
    /// files are read one after the other. Without any, the passages that the folder has already are used.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    passages: Vec<PathBuf>,
    /// Model folder of an encoder (E5, or one of sentence-transformers): vectors are made, too.
    #[arg(long, value_name = "DIR")]
    encoder: Option<PathBuf>,
    /// Make no index of terms, only vectors.
    #[arg(long, requires = "encoder")]
    without_terms: bool,
    #[command(flatten)]
    encoding: super::Encoding,
    /// Keep vectors in single precision (four bytes a number) instead of half.
    #[arg(long, requires = "encoder")]
    f32_vectors: bool,
    /// Megabytes that terms may fill before they are put aside on disk.
    #[arg(long, value_name = "MB", default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    memory: u64,
}

/// Runs the command.
pub(crate) fn run(args: &BuildArgs) -> anyhow::Result<ExitCode> {
    let stop = stop_on_interrupt()?;
    // The encoder first: a wrong folder should not cost the time to read the passages.
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
    // Vectors alone are added to a folder that has everything else.
    let complete = args.passages.is_empty()
        && args.folder.join(PASSAGES).is_dir()
        && (args.without_terms || args.folder.join(BM25).is_dir());
    let mut built = Ok(BuildProgress::default());
    if !complete || encoder.is_none() {
        built = watched("index", &|watch| build(&folder, &args.passages, parts, options, watch));
    }
    if let (Ok(_), Some(encoder)) = (&built, &encoder) {
        let precision = if args.f32_vectors { Precision::F32 } else { Precision::F16 };
        let options = DenseOptions { precision };
        built = watched("encode", &|watch| build_vectors(&folder, encoder, options, watch));
    }
    let built = match built {
        Err(RetrievalError::Interrupted) => {
            print("Stopped; nothing is kept of what was not finished. The same command starts again.");
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

fn message(progress: BuildProgress, start: &Instant) -> String {
    if progress.joining {
        return format!("{} passages read, joining their terms", progress.passages);
    }
    let rate = progress.bytes as f64 / 1e6 / start.elapsed().as_secs_f64().max(1e-3);
    format!("{} passages  {rate:.1} MB/s", progress.passages)
}
