pub(crate) mod file;
pub(crate) mod layout;
#[cfg(test)]
mod paper_tests;
mod plan;
mod process;
mod progress;
mod supervise;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use turnwise_train::config::suggest;

use self::file::SweepFile;
use self::layout::Layout;
use self::plan::{OnDisk, PlannedRun, on_disk, plan};
use self::supervise::{End, Limits, Supervisor};
use crate::ui::{self, Ui};
use crate::worlds;

/// Train many runs: each config with each seed. Rerun the command to resume.
///
/// Runs are saved in RUNS/SWEEP/ENTRY-seed-N. Runs with the same SFT settings and seed share a warm
/// start. Compare them with `turnwise compare SWEEP.toml`.
#[derive(Args)]
pub(crate) struct SweepArgs {
    /// The sweep file.
    #[arg(value_name = "SWEEP.toml")]
    file: PathBuf,
    /// Config overrides for all runs, e.g. train.steps=20; they take precedence over the sweep
    /// file.
    #[arg(value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Number of runs to train in parallel, each in its own process.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: u16,
    /// Maximum number of retries of a failed run.
    #[arg(long, default_value_t = 1)]
    retries: u32,
    /// Train only the run with this number (counted from 0), for job arrays.
    #[arg(long)]
    index: Option<usize>,
    /// Train only these (comma-separated names): a [[run]] with all its seeds and grid points, one
    /// grid point, or one run.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', conflicts_with = "index")]
    only: Vec<String>,
    /// List the runs with their numbers and progress.
    #[arg(long, conflicts_with_all = ["index", "dry_run"])]
    list: bool,
    /// Check the first run of each method and print its memory estimate; train nothing.
    #[arg(long)]
    dry_run: bool,
    /// Start runs even if their estimated memory exceeds what this machine or device has.
    #[arg(long, conflicts_with = "list")]
    ignore_memory: bool,
    /// Parent folder of the sweep's directory.
    #[arg(long, default_value = "runs")]
    runs: PathBuf,
}

pub(crate) fn run(args: &SweepArgs) -> anyhow::Result<ExitCode> {
    let sweep = SweepFile::read(&args.file)?.with_overrides(&args.overrides)?;
    let layout = Layout::new(&args.runs, &sweep.name);
    let runs = plan(&sweep, &args.file)?;
    let chosen = choose(&runs, args)?;
    if args.list {
        list(&runs, &chosen, &layout);
        return Ok(ExitCode::SUCCESS);
    }
    if args.dry_run {
        return dry_run(&runs, &chosen, &layout, args.ignore_memory);
    }
    let limits =
        Limits { jobs: usize::from(args.jobs), retries: args.retries, ignore_memory: args.ignore_memory };
    let supervisor = Supervisor::new(&runs, &chosen, &layout, limits)?;
    let ends = supervisor.work(ui::stop_on_interrupt()?);
    Ok(report(&runs, &ends, args, &layout))
}

fn choose(runs: &[PlannedRun], args: &SweepArgs) -> anyhow::Result<Vec<usize>> {
    let file = args.file.display();
    if let Some(index) = args.index {
        if index >= runs.len() {
            bail!("--index {index}: {file} has {} runs, numbered from 0 to {}", runs.len(), runs.len() - 1);
        }
        return Ok(vec![index]);
    }
    if let Some(name) = args.only.iter().find(|name| !runs.iter().any(|run| run.entry.is_called(name))) {
        let mut known: Vec<&str> = Vec::new();
        for run in runs {
            let method = run.entry.run.as_deref().unwrap_or(&run.entry.name);
            if !known.contains(&method) {
                known.push(method);
            }
        }
        let nearest =
            suggest(name, &known).map_or_else(String::new, |near| format!(" Did you mean `{near}`?"));
        bail!(
            "--only {name}: {file} has no run of that name.{nearest} There are: {}; `--list` shows every run",
            known.join(", ")
        );
    }
    let is_chosen =
        |run: &PlannedRun| args.only.is_empty() || args.only.iter().any(|name| run.entry.is_called(name));
    Ok((0..runs.len()).filter(|&index| is_chosen(&runs[index])).collect())
}

fn list(runs: &[PlannedRun], chosen: &[usize], layout: &Layout) {
    let width = chosen.iter().map(|&index| runs[index].entry.run_name().len()).max().unwrap_or(0);
    for &index in chosen {
        let run = &runs[index];
        let name = run.entry.run_name();
        let state = match on_disk(&layout.run(&name), Some(&run.config)) {
            Ok(OnDisk::Absent) => "not begun".to_owned(),
            Ok(OnDisk::Begun) => "begun".to_owned(),
            Ok(OnDisk::Finished) => "finished".to_owned(),
            Err(error) => format!("cannot go on: {error:#}"),
        };
        let warm = run.warm_start.as_ref().map_or_else(String::new, |name| format!("  warm start {name}"));
        ui::print(&format!("{index:>4}  {name:<width$}  {state}{warm}"));
    }
}

fn dry_run(
    runs: &[PlannedRun],
    chosen: &[usize],
    layout: &Layout,
    ignore_memory: bool,
) -> anyhow::Result<ExitCode> {
    let mut seen = BTreeSet::new();
    let mut ui = Ui::new();
    for &index in chosen {
        let run = &runs[index];
        let name = run.entry.run_name();
        let root = layout.run(&name);
        let found = on_disk(&root, Some(&run.config))?;
        if !seen.insert(&run.entry.name) || found != OnDisk::Absent {
            continue;
        }
        let of_run = || format!("run `{name}`");
        let planned = worlds::run(run.config.clone()).directory(root);
        let checked = planned.preflight(None, &mut ui);
        let checked = checked.map_err(|error| run.entry.source.locate(error)).with_context(of_run)?;
        ui.finish();
        ui::print(&format!("{name}\n{checked}\n"));
        checked.check_memory(ignore_memory).with_context(of_run)?;
    }
    let warm: BTreeSet<&String> =
        chosen.iter().filter_map(|&index| runs[index].warm_start.as_ref()).collect();
    ui::print(&format!("{} runs are sound; {} warm starts are shared", chosen.len(), warm.len()));
    Ok(ExitCode::SUCCESS)
}

fn report(runs: &[PlannedRun], ends: &[(usize, End)], args: &SweepArgs, layout: &Layout) -> ExitCode {
    let count = |wanted: fn(&End) -> bool| ends.iter().filter(|(_, end)| wanted(end)).count();
    let failed = count(|end| matches!(end, End::Failed(_)));
    let interrupted = count(|end| *end == End::Interrupted);
    let done = ends.len() - failed - interrupted;
    ui::print(&format!(
        "\n{done} of {} runs are finished ({} were before), {failed} failed{}",
        ends.len(),
        count(|end| *end == End::Before),
        if interrupted > 0 { format!(", {interrupted} are not done") } else { String::new() }
    ));
    for (index, end) in ends {
        if let End::Failed(reason) = end {
            let name = runs[*index].entry.run_name();
            ui::print(&format!("  {name}: {reason}\n    log: {}", layout.log(&name).display()));
        }
    }
    if interrupted > 0 {
        ui::print(&format!("  go on with      turnwise sweep {}", again(args, &same_runs(args))));
        return ExitCode::from(ui::INTERRUPTED);
    }
    if done > 0 {
        ui::print(&format!("  compare them    turnwise compare {}", again(args, &[])));
    }
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn same_runs(args: &SweepArgs) -> Vec<String> {
    let mut words = args.overrides.clone();
    if let Some(index) = args.index {
        words.extend(["--index".to_owned(), index.to_string()]);
    }
    if !args.only.is_empty() {
        words.extend(["--only".to_owned(), args.only.join(",")]);
    }
    words.extend(args.ignore_memory.then(|| "--ignore-memory".to_owned()));
    words
}

fn again(args: &SweepArgs, more: &[String]) -> String {
    let mut words = vec![args.file.display().to_string()];
    words.extend_from_slice(more);
    if args.runs != Path::new("runs") {
        words.extend(["--runs".to_owned(), args.runs.display().to_string()]);
    }
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./=,:+-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;

    use super::*;

    #[test]
    fn the_command_to_go_on_with_means_the_same_runs() {
        let go_on = |words: &[&str]| {
            let command = SweepArgs::augment_args(clap::Command::new("sweep"));
            let matches = command.try_get_matches_from([&["sweep"], words].concat()).unwrap();
            let args = SweepArgs::from_arg_matches(&matches).unwrap();
            again(&args, &same_runs(&args))
        };
        assert_eq!(go_on(&["a.toml", "seed=3", "--index", "2"]), "a.toml seed=3 --index 2");
        assert_eq!(
            go_on(&["a.toml", "--only", "grpo,b", "--runs", "out"]),
            "a.toml --only grpo,b --runs out"
        );
        assert_eq!(go_on(&["a.toml", "--ignore-memory"]), "a.toml --ignore-memory");
        assert_eq!(
            go_on(&["my sweep.toml", r#"eval.splits=["valid_unseen"]"#, "name=it's"]),
            r#"'my sweep.toml' 'eval.splits=["valid_unseen"]' 'name=it'\''s'"#
        );
    }
}
