//! `turnwise train` and `turnwise sft`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use turnwise_train::config::{Config, ConfigSource};
use turnwise_train::run::warm_start_of;
use turnwise_train::{Observer, Position, Resume, Run, RunDirectory, RunEnd, TrainError, preflight};

use crate::memory;
use crate::ui::{self, Ui};
use crate::worlds::{self, load};

/// Train as a config says.
#[derive(Args)]
pub(crate) struct TrainArgs {
    /// Config files, later ones win, and overrides written key.sub=value.
    #[arg(value_name = "CONFIG|KEY=VALUE")]
    sources: Vec<String>,
    /// A method in the place of the files' own, or a whole config to start from.
    #[arg(long)]
    preset: Option<String>,
    /// Continue this run directory from its newest whole checkpoint; key=value changes settings from there on.
    #[arg(long, value_name = "RUN", conflicts_with = "preset")]
    resume: Option<PathBuf>,
    /// With --resume: continue from this checkpoint (step-12, sft-300) and leave later ones behind.
    #[arg(long, value_name = "CHECKPOINT", requires = "resume")]
    from: Option<Position>,
    /// Start from the end of this run's warm start, which must be the one that the config asks for.
    #[arg(long, value_name = "RUN", conflicts_with = "resume")]
    warm_start: Option<PathBuf>,
    /// Folder that run directories are made in.
    #[arg(long, default_value = "runs", conflicts_with = "resume")]
    runs: PathBuf,
    /// Only check everything and print what memory the run takes; nothing is written.
    #[arg(long, conflicts_with = "resume")]
    dry_run: bool,
}

/// Only the warm start of a config.
#[derive(Args)]
pub(crate) struct SftArgs {
    /// Config files, later ones win, and overrides written key.sub=value.
    #[arg(value_name = "CONFIG|KEY=VALUE", required_unless_present = "preset")]
    sources: Vec<String>,
    /// A method in the place of the files' own, or a whole config to start from.
    #[arg(long)]
    preset: Option<String>,
    /// Folder that run directories are made in.
    #[arg(long, default_value = "runs")]
    runs: PathBuf,
}

/// Overrides are what has a `=` after a key; files are the rest, and what is there under a name with a `=`.
pub(crate) fn split_arguments(arguments: Vec<String>) -> (Vec<PathBuf>, Vec<String>) {
    let is_override = |argument: &String| {
        let key = argument.split_once('=').map(|(key, _)| key);
        key.is_some_and(|key| !key.contains('/')) && !Path::new(argument).is_file()
    };
    let (overrides, files): (Vec<String>, Vec<String>) = arguments.into_iter().partition(is_override);
    (files.into_iter().map(PathBuf::from).collect(), overrides)
}

pub(crate) fn run(args: TrainArgs) -> anyhow::Result<ExitCode> {
    let (files, overrides) = split_arguments(args.sources);
    if let Some(root) = args.resume {
        if let Some(file) = files.first() {
            anyhow::bail!(
                "{}: a resumed run has its own config; change settings with key=value",
                file.display()
            );
        }
        let resume = Resume { overrides, from: args.from };
        return train(|observer| Run::resume_with(&worlds::parts(), &root, &resume, observer));
    }
    if files.is_empty() && overrides.is_empty() && args.preset.is_none() {
        anyhow::bail!(
            "nothing to train: give a config file or --preset NAME (turnwise config presets lists them), or --resume RUN"
        );
    }
    let config = load(&ConfigSource { preset: args.preset, files, overrides })?;
    if args.dry_run {
        if let Some(warm) = &args.warm_start {
            warm_start_of(&worlds::parts(), &config, &RunDirectory::open(warm)?)?;
        }
        return dry_run(&config, &args.runs);
    }
    if let Some(warm) = args.warm_start {
        let root = args.runs.join(&config.name);
        let parts = worlds::parts();
        return train(|observer| Run::start_from_warm_start(&parts, config, &root, &warm, observer));
    }
    start(config, &args.runs)
}

/// Checks all that a run checks at its start, and prints the plan of its memory.
fn dry_run(config: &Config, runs: &Path) -> anyhow::Result<ExitCode> {
    let mut ui = Ui::new();
    worlds::parts().policies.check(config)?;
    let found = preflight(config, &runs.join(&config.name), &mut ui)?;
    ui.finish();
    ui::print(&format!("the config of run `{}` is sound (turnwise config show prints it)", config.name));
    ui::print(&found.to_string());
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn run_sft(args: SftArgs) -> anyhow::Result<ExitCode> {
    let (files, overrides) = split_arguments(args.sources);
    let mut config = load(&ConfigSource { preset: args.preset, files, overrides })?;
    if config.sft.steps == 0 {
        anyhow::bail!("sft.steps is 0, so there is no warm start to do; set sft.steps=N");
    }
    config.train.steps = 0;
    start(config, &args.runs)
}

fn start(config: Config, runs: &Path) -> anyhow::Result<ExitCode> {
    let root = runs.join(&config.name);
    train(|observer| Run::start_with(&worlds::parts(), config, &root, observer))
}

/// Opens a run and trains it to the end or to Ctrl-C.
fn train(open: impl FnOnce(&mut dyn Observer) -> Result<Run, TrainError>) -> anyhow::Result<ExitCode> {
    let mut ui = Ui::new();
    let mut run = open(&mut ui)?;
    memory::keep_freed_memory(&run);
    let outcome = run.train(&mut ui, ui::stop_on_interrupt()?)?;
    ui.finish();
    Ok(report(&run, outcome))
}

fn exit_code(outcome: RunEnd) -> ExitCode {
    match outcome {
        RunEnd::Finished => ExitCode::SUCCESS,
        RunEnd::Interrupted => ExitCode::from(ui::INTERRUPTED),
    }
}

/// Says where everything lies, or how to go on.
pub(crate) fn report(run: &Run, outcome: RunEnd) -> ExitCode {
    let root = run.directory().root().display();
    match outcome {
        RunEnd::Finished => {
            match run.nothing_trained() {
                Some(reason) => {
                    ui::print(&format!("\nThis run {reason}.\nEverything about it is in {root}"));
                }
                None => ui::print(&format!("\nDone. Everything about this run is in {root}")),
            }
            ui::print(&format!("  evaluate again   turnwise eval {root}"));
            ui::print(&format!("  look at turns    turnwise view {root}"));
        }
        RunEnd::Interrupted => {
            ui::print(&format!(
                "\nInterrupted; nothing is lost. Go on with\n  turnwise train --resume {root}"
            ));
        }
    }
    exit_code(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_an_equals_sign_is_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().join("a=b.toml");
        std::fs::write(&there, "").unwrap();
        let arguments = ["runs/lr=1/s.toml", "x.toml", "policy.model=a/b", there.to_str().unwrap()];
        let (files, overrides) = split_arguments(arguments.map(str::to_owned).to_vec());
        assert_eq!(files, [PathBuf::from("runs/lr=1/s.toml"), PathBuf::from("x.toml"), there]);
        assert_eq!(overrides, ["policy.model=a/b"]);
    }
}
