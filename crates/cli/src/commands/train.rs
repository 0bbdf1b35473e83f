//! `turnwise train` and `turnwise sft`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use turnwise_train::config::{Config, ConfigSource, load};
use turnwise_train::{Outcome, Run};

use crate::ui::{self, Ui};

/// Exit status of a run that was interrupted and can be resumed, as a shell gives it for Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Train as a config says.
#[derive(Args)]
pub(crate) struct TrainArgs {
    /// Config files, later ones win, and overrides written key.sub=value.
    #[arg(value_name = "CONFIG|KEY=VALUE")]
    sources: Vec<String>,
    /// Start from this preset.
    #[arg(long)]
    preset: Option<String>,
    /// Continue this run directory from its newest checkpoint.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["sources", "preset"])]
    resume: Option<PathBuf>,
    /// Folder that run directories are made in.
    #[arg(long, default_value = "runs")]
    runs: PathBuf,
    /// Only resolve and check the config, and print it.
    #[arg(long)]
    dry_run: bool,
}

/// Only the warm start of a config.
#[derive(Args)]
pub(crate) struct SftArgs {
    /// Config files, later ones win, and overrides written key.sub=value.
    #[arg(value_name = "CONFIG|KEY=VALUE", required = true)]
    sources: Vec<String>,
    /// Start from this preset.
    #[arg(long)]
    preset: Option<String>,
    /// Folder that run directories are made in.
    #[arg(long, default_value = "runs")]
    runs: PathBuf,
}

/// Files are what has no `=`, overrides what has one.
pub(crate) fn split_arguments(arguments: Vec<String>) -> (Vec<PathBuf>, Vec<String>) {
    let (overrides, files): (Vec<String>, Vec<String>) =
        arguments.into_iter().partition(|argument| argument.contains('='));
    (files.into_iter().map(PathBuf::from).collect(), overrides)
}

pub(crate) fn run(args: TrainArgs) -> anyhow::Result<ExitCode> {
    if let Some(root) = args.resume {
        let mut ui = Ui::new();
        let mut run = Run::resume(&root, &mut ui)?;
        return drive(&mut run, &mut ui);
    }
    let (files, overrides) = split_arguments(args.sources);
    if files.is_empty() && overrides.is_empty() && args.preset.is_none() {
        anyhow::bail!(
            "nothing to train: give a config file or --preset NAME (turnwise config presets lists them), or --resume RUN"
        );
    }
    let config = load(&ConfigSource { preset: args.preset, files, overrides })?;
    if args.dry_run {
        ui::print(config.to_toml()?.trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    start(config, &args.runs)
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
    let mut ui = Ui::new();
    let mut run = Run::start(config, &root, &mut ui)?;
    drive(&mut run, &mut ui)
}

/// Trains to the end or to Ctrl-C, and says where everything lies.
fn drive(run: &mut Run, ui: &mut Ui) -> anyhow::Result<ExitCode> {
    let stop = ui::stop_on_interrupt()?;
    let outcome = run.train(ui, stop)?;
    ui.finish();
    Ok(report(run, outcome))
}

/// Says where everything lies, or how to go on.
pub(crate) fn report(run: &Run, outcome: Outcome) -> ExitCode {
    let root = run.directory().root().display();
    match outcome {
        Outcome::Finished => {
            ui::print(&format!("\nDone. Everything about this run is in {root}"));
            ui::print(&format!("  evaluate again   turnwise eval {root}"));
            ExitCode::SUCCESS
        }
        Outcome::Interrupted => {
            ui::print(&format!(
                "\nInterrupted; nothing is lost. Go on with\n  turnwise train --resume {root}"
            ));
            ExitCode::from(INTERRUPTED)
        }
    }
}
