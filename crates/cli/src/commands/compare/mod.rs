mod plot;
mod tables;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use turnwise_eval::compare::runs::RunResults;
use turnwise_eval::compare::{CompareSettings, compare};
use turnwise_eval::statistics::Bootstrap;

use super::output::{check_ending, check_output, write_text};
use super::sweep::file::SweepFile;
use super::sweep::layout::Layout;
use super::{is_run, name_of};
use crate::ui::{self, Ui};

/// Compare runs: success by task kind, interquartile mean with bootstrap intervals over seeds,
/// paired tests and learning curves.
///
/// Runs whose names differ only in a final `-seed-N` are seeds of one method. From a folder or
/// sweep, only finished runs are compared. With --at, all runs evaluated at that step are compared,
/// including unfinished ones.
#[derive(Args)]
pub(crate) struct CompareArgs {
    /// Run directories, folders of runs (runs/SWEEP), or sweep files (SWEEP.toml).
    #[arg(value_name = "RUN|SWEEP", required = true)]
    runs: Vec<PathBuf>,
    /// Folder that contains the runs of a sweep file.
    #[arg(long = "runs", value_name = "FOLDER", default_value = "runs")]
    root: PathBuf,
    /// Method that all others are compared with [default: the sweep file's baseline, else the first
    /// method].
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,
    /// Splits to compare [default: all evaluated splits].
    #[arg(long)]
    split: Vec<String>,
    /// Step to compare [default: the last step of each run].
    #[arg(long, value_name = "STEP")]
    at: Option<u64>,
    /// Folder in each run that contains the evaluations (`turnwise eval RUN --output RUN/FOLDER/`);
    /// if repeated, evaluations of the same step are averaged.
    #[arg(long, value_name = "FOLDER", default_value = "eval")]
    evaluations: Vec<String>,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Write an SVG with learning curves and with differences between methods, both with intervals.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Average training success over this many steps, in curves and differences.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    smooth: u32,
    /// Number of resamples for intervals and significance tests.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    resamples: u32,
    /// Seed for resampling.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables for the terminal.
    #[default]
    Text,
    /// Tables for Markdown.
    Markdown,
    /// Tables for LaTeX (booktabs).
    Latex,
    /// One value with its interval per line, including learning curves.
    Csv,
    /// Everything.
    Json,
}

pub(crate) fn run(args: CompareArgs) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.svg {
        check_ending("--svg", path, "svg")?;
        check_output("--svg", path)?;
    }
    let (mut runs, mut of_sweeps, mut left_out) = (Vec::new(), OfSweeps::default(), Vec::new());
    for argument in &args.runs {
        let named = is_run(argument);
        for folder in run_folders(argument, &args.root, &mut of_sweeps)? {
            let run = RunResults::read_with(&folder, &args.evaluations)?;
            let compared = args.at.map_or(run.finished, |at| run.evaluations.contains_key(&at));
            if named || compared {
                runs.push(run);
            } else {
                left_out.push(run.name);
            }
        }
    }
    let note = match args.at {
        Some(at) => format!("without an evaluation of step {at} and left out: {}", left_out.join(", ")),
        None => {
            format!("not finished and left out (--at STEP compares what is there): {}", left_out.join(", "))
        }
    };
    if runs.is_empty() {
        bail!("there is nothing to compare; {note}");
    }
    let settings = CompareSettings {
        baseline: args.baseline,
        baselines: of_sweeps.baselines,
        pools: of_sweeps.pools,
        splits: args.split,
        at: args.at,
        bootstrap: Bootstrap { resamples: args.resamples as usize, seed: args.seed },
        smooth: args.smooth as usize,
    };
    let mut comparison = compare(&runs, &settings)?;
    if !left_out.is_empty() {
        comparison.notes.push(note);
    }
    let text = match args.format {
        Format::Text => tables::text(&comparison),
        Format::Markdown => tables::markdown(&comparison),
        Format::Latex => tables::latex(&comparison),
        Format::Csv => tables::csv(&comparison),
        Format::Json => serde_json::to_string_pretty(&comparison)?,
    };
    ui::print(text.trim_end());
    if args.format == Format::Csv {
        let ui = Ui::new();
        for note in &comparison.notes {
            ui.say(&format!("note: {note}"));
        }
    }
    if let Some(path) = args.svg {
        write_text("--svg", &path, &plot::plots(&comparison, &title_of(&args.runs)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn title_of(arguments: &[PathBuf]) -> String {
    let name = |path: &PathBuf| {
        let sweep = path.extension().is_some_and(|extension| extension == "toml");
        let named = sweep.then(|| SweepFile::read(path).ok()).flatten().map(|sweep| sweep.name);
        named.unwrap_or_else(|| name_of(path))
    };
    let mut names: Vec<String> = arguments.iter().map(name).collect();
    names.dedup();
    match names.len().checked_sub(4) {
        Some(more @ 1..) => format!("{} and {more} more", names[..4].join(", ")),
        _ => names.join(", "),
    }
}

#[derive(Default)]
struct OfSweeps {
    baselines: BTreeMap<String, String>,
    pools: Vec<(String, Vec<String>)>,
}

/// Returns the runs of an argument: a run, a folder of runs (sorted by name), or a sweep file (in
/// the file's order).
fn run_folders(argument: &Path, root: &Path, of_sweeps: &mut OfSweeps) -> anyhow::Result<Vec<PathBuf>> {
    if is_run(argument) {
        return Ok(vec![argument.to_path_buf()]);
    }
    if argument.extension().is_some_and(|extension| extension == "toml") {
        let sweep = SweepFile::read(argument)?;
        let layout = Layout::new(root, &sweep.name);
        let entries = sweep.entries()?;
        let all = entries.iter().map(|entry| layout.run(&entry.run_name()));
        let begun: Vec<PathBuf> = all.filter(|folder| is_run(folder)).collect();
        if begun.is_empty() {
            let (file, folder) = (argument.display(), layout.root().display());
            bail!("{file}: no run of it is in {folder}; start them with `turnwise sweep {file}`");
        }
        let own = entries.into_iter().filter_map(|entry| Some((entry.name, entry.baseline?)));
        of_sweeps.baselines.extend(own);
        of_sweeps.pools.extend(sweep.pools());
        return Ok(begun);
    }
    let entries = std::fs::read_dir(argument).with_context(|| argument.display().to_string())?;
    let mut found: Vec<PathBuf> = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| argument.display().to_string())?.path();
        if is_run(&path) {
            found.push(path);
        }
    }
    if found.is_empty() {
        bail!(
            "{}: is neither a run directory (it has no config.toml) nor a folder of them",
            argument.display()
        );
    }
    found.sort();
    Ok(found)
}
