use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use clap::Args;
use turnwise_core::{Purpose, Trajectory};
use turnwise_eval::Agent;
use turnwise_policy::Policy;
use turnwise_train::record::directory::write_trajectories;
use turnwise_train::record::panels::pin_first;
use turnwise_train::rollout::{Job, Played, Rollout, is_faulty};
use turnwise_train::setup::World;
use turnwise_train::{Event, Observer as _};

use super::eval::{config_of, runner_of};
use super::output::check_output;
use super::seed;
use crate::registries::registries;
use crate::ui::{self, Ui};

/// Run episodes with a policy and write the trajectories to a file.
///
/// Exits with status 1 if the environment or the sampler failed in a trajectory; such a trajectory
/// is written too, with its error.
#[derive(Args)]
pub(crate) struct RolloutArgs {
    /// A run directory (newest checkpoint), a checkpoint, or a model folder.
    policy: PathBuf,
    /// Config files and overrides, e.g. eval.tasks=64 [default: the run's or checkpoint's own
    /// config].
    #[arg(value_name = "CONFIG|KEY=VALUE")]
    sources: Vec<String>,
    /// Output file: trajectories as JSON lines (compressed if it ends in .zst).
    #[arg(short = 'o', long = "output", value_name = "FILE", alias = "out")]
    out: PathBuf,
    /// Split to play.
    #[arg(long, default_value = "train")]
    split: String,
    /// Number of tasks, taken in content-hash order; 0 for all.
    #[arg(long, default_value_t = 16)]
    tasks: usize,
    /// Number of trajectories per task.
    #[arg(long, default_value_t = 1)]
    samples: usize,
    /// Sampling temperature; 0 is greedy [default: the config's rollout temperature].
    #[arg(long)]
    temperature: Option<f32>,
    /// Seed for sampling [default: from the config].
    #[arg(long, value_parser = seed)]
    seed: Option<u64>,
}

pub(crate) fn run(args: RolloutArgs) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(args.samples > 0, "--samples 0: every task needs a trajectory at least");
    if let Some(temperature) = args.temperature.filter(|temperature| !(0.0..=100.0).contains(temperature)) {
        anyhow::bail!("--temperature {temperature}: must be 0 (greedy) or more and at most 100");
    }
    check_output("--output", &args.out)?;
    let mut ui = Ui::new();
    let policy = Policy::load_with(&args.policy, &mut |note| ui.event(Event::Note(note)))?;
    let mut config = config_of(&args.policy, &policy, args.sources, None, Agent::Plain)?;
    if let Some(seed) = args.seed {
        config.seed = seed;
    }
    config.check(&registries())?;
    let world =
        World::new(&config.env, &registries(), &[&args.split], &mut |note| ui.event(Event::Note(note)))?;
    let panel = pin_first(world.task_set(), &args.split, args.tasks)?;
    let runner = runner_of(&config, world, &policy)?;
    let stop = ui::stop_on_interrupt()?;
    let jobs: Vec<Job> = panel
        .tasks
        .iter()
        .enumerate()
        .flat_map(|(group, task)| (0..args.samples).map(move |sample| Job::new(task.clone(), group, sample)))
        .collect();
    let temperature = args.temperature.unwrap_or(config.rollout.temperature);
    let rollout = Rollout::new(&config, Purpose::Evaluation, stop);
    let rollout = Rollout { temperature, max_resamples: 0, ..rollout };
    let mut samplers = runner.samplers(&config, &policy.weights)?;
    let played = runner.play(&rollout, &jobs, &mut samplers, |progress| {
        ui.tasks(
            "rollout",
            progress.finished.load(Ordering::Relaxed),
            jobs.len(),
            progress.solved.load(Ordering::Relaxed),
        );
    })?;
    ui.finish();
    let Some(Played { mut trajectories, .. }) = played else {
        anyhow::bail!("interrupted; nothing was written");
    };
    runner.finish(&config, &mut trajectories);
    write_trajectories(&args.out, trajectories.iter())?;
    let solved = trajectories.iter().filter(|trajectory| trajectory.success).count();
    let faulty: Vec<&Trajectory> = trajectories.iter().filter(|trajectory| is_faulty(trajectory)).collect();
    if let Some(first) = faulty.first() {
        let (count, reason) = (faulty.len(), &first.stop);
        ui.event(Event::Note(format!("warning: {count} trajectories failed, the first by {reason:?}")));
    }
    let failed = match faulty.len() {
        0 => String::new(),
        count => format!("{count} failed, "),
    };
    ui::print(&format!(
        "{} trajectories of {} tasks, {solved} solved, {failed}written to {}",
        trajectories.len(),
        panel.tasks.len(),
        args.out.display()
    ));
    Ok(if faulty.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
