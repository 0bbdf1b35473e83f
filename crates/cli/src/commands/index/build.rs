//! `turnwise index build`: from a file of passages to a folder that is searched.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Instant;

use clap::Args;
use turnwise_retrieval::RetrievalError;
use turnwise_retrieval::build::{BuildFolder, BuildProgress, Parts, build};
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
    /// Megabytes that terms may fill before they are put aside on disk.
    #[arg(long, value_name = "MB", default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    memory: u64,
}

/// Runs the command.
pub(crate) fn run(args: &BuildArgs) -> anyhow::Result<ExitCode> {
    let stop = stop_on_interrupt()?;
    let folder = BuildFolder::open(&args.folder)?;
    let start = Instant::now();
    let mut meter = Meter::new("index");
    let options = BuildOptions { memory: (args.memory << 20) as usize };
    let built = build(&folder, &args.passages, Parts::Bm25, options, &mut |progress| {
        meter.show(progress.read, progress.length, &message(progress, &start));
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    meter.finish();
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
