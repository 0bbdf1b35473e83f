//! `turnwise eval`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::Context as _;
use clap::Args;
use turnwise_eval::{Evaluation, EvaluationSettings, Rate, evaluate};
use turnwise_train::config::{Config, ConfigSource, load, load_resolved};
use turnwise_train::panel::pin_first;
use turnwise_train::rundir::write_trajectories;
use turnwise_train::setup::{Policy, World};

use super::train::split_arguments;
use crate::ui::{self, Ui};

/// Evaluate a run, checkpoint or model.
#[derive(Args)]
pub(crate) struct EvalArgs {
    /// A run directory (its newest checkpoint), a checkpoint, a model folder, or a model of the hub (ORG/NAME).
    policy: PathBuf,
    /// Config files and overrides written key.sub=value. A run or checkpoint brings its own config.
    #[arg(value_name = "CONFIG|KEY=VALUE")]
    sources: Vec<String>,
    /// Splits to evaluate; the config's by default.
    #[arg(long)]
    split: Vec<String>,
    /// Tasks per split; 0 takes all. The config's by default.
    #[arg(long)]
    tasks: Option<usize>,
    /// Softmax temperature; 0 is greedy. The config's by default.
    #[arg(long)]
    temperature: Option<f32>,
    /// Seed of the draws; the config's by default.
    #[arg(long)]
    seed: Option<u64>,
    /// Write the results as JSON.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write every trajectory as JSON lines (compressed where the name ends in .zst).
    #[arg(long, value_name = "FILE")]
    trajectories: Option<PathBuf>,
}

pub(crate) fn run(args: EvalArgs) -> anyhow::Result<ExitCode> {
    let mut config = config_of(&args.policy, args.sources)?;
    if let Some(seed) = args.seed {
        config.seed = seed;
    }
    if !args.split.is_empty() {
        config.eval.splits = args.split;
    }
    if let Some(tasks) = args.tasks {
        config.eval.tasks = tasks;
    }
    if let Some(temperature) = args.temperature {
        config.eval.temperature = temperature;
    }
    config.check()?;
    let mut ui = Ui::new();
    let policy = Policy::load_telling(&args.policy, &mut ui)?;
    let world = World::new(&config.env, &config.splits(), &mut ui)?;
    let stop = ui::stop_on_interrupt()?;
    let mut results = Vec::new();
    let mut played = Vec::new();
    for split in &config.eval.splits {
        let panel = pin_first(world.task_set(), split, config.eval.tasks)?;
        let settings = EvaluationSettings {
            config: &config,
            world: &world,
            weights: policy.weights.clone(),
            tokenizer: std::sync::Arc::clone(&policy.tokenizer),
            temperature: config.eval.temperature,
            stop,
        };
        let (result, trajectories) = evaluate(&settings, &panel, |progress| {
            ui.tasks(
                "evaluate",
                progress.finished.load(Ordering::Relaxed),
                panel.tasks.len(),
                progress.solved.load(Ordering::Relaxed),
            );
        })?;
        ui.finish();
        ui::print(&table(&result));
        results.push(result);
        played.extend(trajectories);
    }
    if let Some(path) = args.out {
        let text = serde_json::to_string_pretty(&results)? + "\n";
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    if let Some(path) = args.trajectories {
        write_trajectories(&path, played.iter())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The config a policy was trained with, where it lies in a run directory; else what the files say.
pub(crate) fn config_of(policy: &Path, sources: Vec<String>) -> anyhow::Result<Config> {
    let (files, overrides) = split_arguments(sources);
    // A model of the hub is no path, and brings no config.
    let own = policy.canonicalize().ok().and_then(|path| {
        path.ancestors().take(4).map(|folder| folder.join("config.toml")).find(|path| path.is_file())
    });
    let config = match own {
        Some(path) if files.is_empty() && overrides.is_empty() => load_resolved(&path)?,
        Some(path) => {
            let files = std::iter::once(path).chain(files).collect();
            load(&ConfigSource { preset: None, files, overrides })?
        }
        None => load(&ConfigSource { preset: None, files, overrides })?,
    };
    Ok(config)
}

/// A result as a table by kind of task.
pub(crate) fn table(result: &Evaluation) -> String {
    let mut text = format!(
        "{}  ({} tasks, panel {}, {})\n",
        result.split,
        result.success.trials,
        result.panel.get(..12).unwrap_or(&result.panel),
        if result.temperature == 0.0 {
            "greedy".to_owned()
        } else {
            format!("temperature {}", result.temperature)
        }
    );
    let row = |name: &str, rate: &Rate, turns: f64| {
        format!(
            "  {name:<34} {:>4}/{:<4} {:>6.1} %  [{:>5.1}, {:>5.1}]  {turns:>5.1} turns\n",
            rate.successes,
            rate.trials,
            100.0 * rate.rate,
            100.0 * rate.low,
            100.0 * rate.high
        )
    };
    for (kind, result) in &result.kinds {
        text.push_str(&row(kind, &result.success, result.mean_turns));
    }
    text.push_str(&row("all", &result.success, result.mean_turns));
    text.push_str(&format!(
        "  malformed responses {:.1} %, actions the world did not offer {:.1} %, {:.1} s",
        100.0 * result.invalid_rate,
        100.0 * result.inadmissible_rate,
        result.seconds
    ));
    text
}
