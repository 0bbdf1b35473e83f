use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use serde::Serialize;
use turnwise_core::Batch;
use turnwise_eval::Agent;
use turnwise_eval::analysis::{AnalysisSettings, play_groups};
use turnwise_policy::Policy;
use turnwise_train::config::Config;
use turnwise_train::record::panels::pin_first;
use turnwise_train::rollout::EnvRunner;
use turnwise_train::setup::World;
use turnwise_train::{Event, Observer as _};

use crate::commands::eval::{config_of, runner_of};
use crate::commands::output::{check_ending, check_output, write_text};
use crate::commands::seed;
use crate::registries::registries;
use crate::ui::{self, Ui};

/// The policy to analyze and the tasks for its rollouts.
#[derive(Args)]
pub(super) struct PlayedArgs {
    /// A run directory (newest checkpoint), a checkpoint, or a model folder.
    policy: PathBuf,
    /// Config files and overrides, e.g. eval.tasks=64 [default: the run's or checkpoint's own
    /// config].
    #[arg(value_name = "CONFIG|KEY=VALUE")]
    sources: Vec<String>,
    /// Split to play [default: the first of eval.splits].
    #[arg(long)]
    split: Option<String>,
    /// Number of tasks, taken in content-hash order; 0 for all.
    #[arg(long, default_value_t = 32)]
    tasks: usize,
    /// Number of trajectories per task.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..))]
    samples: u32,
    /// Seed for sampling [default: the config's].
    #[arg(long, value_parser = seed)]
    seed: Option<u64>,
    /// Also write the results to FILE as JSON.
    #[arg(short, long, value_name = "FILE", alias = "out")]
    output: Option<PathBuf>,
}

pub(super) struct Played {
    pub(super) config: Config,
    pub(super) policy: Policy,
    pub(super) runner: EnvRunner,
    pub(super) stop: &'static AtomicBool,
    pub(super) batch: Batch,
    pub(super) ui: Ui,
    output: Option<PathBuf>,
    split: String,
    tasks: usize,
}

impl Played {
    pub(super) fn new(args: PlayedArgs) -> anyhow::Result<Self> {
        if let Some(path) = &args.output {
            check_ending("--output", path, "json")?;
            check_output("--output", path)?;
        }
        let mut ui = Ui::new();
        let policy = Policy::load_with(&args.policy, &mut |note| ui.event(Event::Note(note)))?;
        let mut config = config_of(&args.policy, &policy, args.sources, None, Agent::Plain)?;
        config.seed = args.seed.unwrap_or(config.seed);
        let Some(split) = args.split.or_else(|| config.eval.splits.first().cloned()) else {
            anyhow::bail!("eval.splits: is empty; name the split to play with --split");
        };
        let world =
            World::new(&config.env, &registries(), &[&split], &mut |note| ui.event(Event::Note(note)))?;
        let panel = pin_first(world.task_set(), &split, args.tasks)?;
        let stop = ui::stop_on_interrupt()?;
        let samples = args.samples as usize;
        let total = panel.tasks.len() * samples;
        let mut played = Self {
            runner: runner_of(&config, world, &policy)?,
            config,
            policy,
            stop,
            batch: Batch::default(),
            ui,
            output: args.output,
            split,
            tasks: panel.tasks.len(),
        };
        let ui = &mut played.ui;
        let settings = Self::settings(&played.config, &played.policy, &played.runner, stop);
        played.batch = play_groups(&settings, &panel.tasks, samples, &mut |progress| {
            ui.tasks(
                "rollout",
                progress.finished.load(Ordering::Relaxed),
                total,
                progress.solved.load(Ordering::Relaxed),
            );
        })?;
        ui.finish();
        Ok(played)
    }

    pub(super) fn settings<'a>(
        config: &'a Config,
        policy: &Policy,
        runner: &'a EnvRunner,
        stop: &'a AtomicBool,
    ) -> AnalysisSettings<'a> {
        AnalysisSettings { config, runner, weights: policy.weights.clone(), stop }
    }

    pub(super) fn summary(&self) -> String {
        let trajectories = self.batch.trajectories().count();
        let solved = self.batch.trajectories().filter(|trajectory| trajectory.success).count();
        format!(
            "{} tasks of {}, {trajectories} trajectories, {:.1} % solved",
            self.tasks,
            self.split,
            100.0 * solved as f64 / trajectories.max(1) as f64
        )
    }

    pub(super) fn write(&self, study: &impl Serialize) -> anyhow::Result<()> {
        if let Some(path) = &self.output {
            write_text("--output", path, &serde_json::to_string_pretty(study)?)?;
        }
        Ok(())
    }
}
