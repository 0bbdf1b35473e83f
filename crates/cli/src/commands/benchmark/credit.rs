use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, ValueEnum};
use turnwise_core::{Task, Trajectory, digest};
use turnwise_eval::analysis::{AnalysisSettings, play_groups};
use turnwise_eval::benchmark::{
    BranchProgress, BranchedTask, BranchingSettings, ScoreSettings, ScoredTurns, TreeSettings, TruthLine,
    TruthSource, TruthSummary, TurnTruth, branch_tasks, summarise, tree_truth, write_truth,
};
use turnwise_eval::{Agent, EvalError};
use turnwise_policy::run_folder::{checkpoint_label, enclosing_run};
use turnwise_policy::{Policy, policy_folder};
use turnwise_train::config::Config;
use turnwise_train::record::panels::pin_first;
use turnwise_train::setup::World;
use turnwise_train::{Event, Observer as _, TrainError};

use super::parts::Parts;
use super::tables::number;
use crate::commands::eval::{config_of, runner_of};
use crate::commands::output::check_output;
use crate::commands::seed;
use crate::registries::registries;
use crate::ui::{self, INTERRUPTED, Meter, Ui};

#[derive(Args)]
pub(crate) struct CreditArgs {
    /// A run directory (newest checkpoint), a checkpoint, or a model folder.
    policy: PathBuf,
    /// Config files and overrides, e.g. eval.tasks=64 [default: the run's or checkpoint's own
    /// config].
    #[arg(value_name = "CONFIG|KEY=VALUE")]
    sources: Vec<String>,
    /// Output file: trajectories with each turn's true advantage, as JSON lines (compressed if it
    /// ends in .zst).
    #[arg(short, long, value_name = "FILE", alias = "out")]
    output: PathBuf,
    /// How to estimate true advantages: from continuations of saved states, or by counting returns
    /// over many samples of each task.
    #[arg(long, value_enum, default_value_t)]
    method: Method,
    /// Split to play.
    #[arg(long, default_value = "train")]
    split: String,
    /// Number of tasks, taken in content-hash order; 0 for all.
    #[arg(long, default_value_t = 32)]
    tasks: usize,
    /// Number of trajectories per group; all trajectories of a group play the same task.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    samples: u32,
    /// Number of continuations from each state [default: 64]. With --method tree: number of samples
    /// per task [default: 512], of which the first eight groups are written.
    #[arg(short = 'k', long, value_name = "K", value_parser = clap::value_parser!(u32).range(2..))]
    continuations: Option<u32>,
    /// Total number of continuations over all tasks. After K continuations from each state, the
    /// remaining ones start at the states whose returns vary the most.
    #[arg(long, value_name = "N")]
    budget: Option<usize>,
    /// Discount factor; with 1, the return equals the episode's outcome, as in group-relative
    /// methods.
    #[arg(long, default_value_t = 1.0)]
    gamma: f64,
    /// Seed for sampling [default: the config's].
    #[arg(long, value_parser = seed)]
    seed: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Method {
    #[default]
    Branching,
    Tree,
}

const TREE_GROUPS: usize = 8;

const TASK: u64 = 1000;

pub(super) fn run(args: CreditArgs) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        (0.0..=1.0).contains(&args.gamma),
        "--gamma {}: must be from 0 to 1; 1 does not discount",
        args.gamma
    );
    let tree = args.method == Method::Tree;
    anyhow::ensure!(
        !(tree && args.budget.is_some()),
        "--budget: --method tree counts as many samples of each task as --continuations says; leave --budget out"
    );
    check_output("--output", &args.output)?;
    let mut ui = Ui::new();
    let folder = policy_folder(&args.policy, &mut |note| ui.event(Event::Note(note)))?;
    let policy = Policy::load_with(&folder, &mut |note| ui.event(Event::Note(note)))?;
    let mut config = config_of(&args.policy, &policy, args.sources, None, Agent::Plain)?;
    config.seed = args.seed.unwrap_or(config.seed);
    config.check(&registries())?;
    let world =
        World::new(&config.env, &registries(), &[&args.split], &mut |note| ui.event(Event::Note(note)))?;
    let panel = pin_first(world.task_set(), &args.split, args.tasks)?;
    let source = TruthSource {
        method: if tree { "tree" } else { "branching" }.to_owned(),
        policy: policy_name(&folder),
        config: config_digest(&config)?,
        split: args.split,
        gamma: args.gamma,
        continuations: args.continuations.map_or(if tree { 512 } else { 64 }, |count| count as usize),
        budget: args.budget.unwrap_or(0),
        samples: args.samples as usize,
        tasks: panel.tasks.len(),
        seed: config.seed,
    };
    let runner = runner_of(&config, world, &policy)?;
    let analysis = AnalysisSettings {
        config: &config,
        runner: &runner,
        weights: policy.weights.clone(),
        stop: ui::stop_on_interrupt()?,
    };
    let started = Instant::now();
    let lines = if tree {
        let lines = count(&analysis, &source, &panel.tasks, &mut ui)?;
        write_truth(&args.output, &lines)?;
        Some(lines)
    } else {
        branch(&analysis, &source, &panel.tasks, &args.output, &ui)?
    };
    let Some(lines) = lines else {
        ui.say("interrupted; the finished tasks are kept, and the same command goes on");
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let summary = summarise(&ScoredTurns::new(lines), &ScoreSettings::default());
    ui::print(&text(&summary, started.elapsed().as_secs_f64(), &args.output));
    Ok(ExitCode::SUCCESS)
}

/// Returns the SHA-256 of the config without its seed, which is stored separately.
fn config_digest(config: &Config) -> anyhow::Result<String> {
    Ok(digest([toml::to_string(&Config { seed: 0, ..config.clone() })?]))
}

fn policy_name(folder: &Path) -> String {
    let name = |path: &Path| {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    };
    match (enclosing_run(folder), checkpoint_label(folder)) {
        (Some(run), Some(label)) => format!("{}/{label}", name(&run)),
        _ => name(folder),
    }
}

fn branch(
    analysis: &AnalysisSettings<'_>,
    source: &TruthSource,
    tasks: &[Task],
    output: &Path,
    ui: &Ui,
) -> anyhow::Result<Option<Vec<TruthLine>>> {
    let parts = Parts::open(output, source)?;
    let open: Vec<(usize, Task)> =
        tasks.iter().cloned().enumerate().filter(|(place, _)| !parts.has(*place)).collect();
    let before = tasks.len() - open.len();
    if before > 0 {
        ui.say(&format!("{before} of {} tasks are measured already", tasks.len()));
    }
    let settings = BranchingSettings {
        samples: source.samples,
        continuations: source.continuations,
        budget: source.budget / tasks.len().max(1),
        gamma: source.gamma,
    };
    let per_step = analysis.config.rollout.tasks_per_step;
    let mut meter = Meter::new("benchmark");
    let (mut sampled, mut failed, mut states, mut seconds) = (0, 0, 0, [0.0, 0.0]);
    let mut keep = |place: usize, branched: BranchedTask| {
        sampled += branched.continuations;
        failed += branched.failed;
        states += branched.states;
        seconds = [seconds[0] + branched.seconds[0], seconds[1] + branched.seconds[1]];
        let lines: Vec<TruthLine> = branched
            .trajectories
            .into_iter()
            .zip(branched.truth)
            .map(|(trajectory, truth)| {
                line(trajectory, place, place / per_step, truth.into_iter().map(Some).collect(), source)
            })
            .collect();
        parts.write(place, &lines).map_err(|error| TrainError::Observer(format!("{error:#}")).into())
    };
    let mut tick = |progress: &BranchProgress| {
        let [done, all] = progress.continuations;
        let of_task = if all > 0 { TASK * done as u64 / all as u64 } else { 0 };
        let done = (before + progress.tasks) as u64 * TASK + of_task.min(TASK);
        let message = format!("{} continuations", progress.all_continuations);
        meter.show(done, tasks.len() as u64 * TASK, &message);
    };
    let measured = branch_tasks(analysis, &settings, &open, &mut keep, &mut tick);
    meter.finish();
    match measured {
        Err(EvalError::Interrupted) => return Ok(None),
        other => other?,
    }
    if sampled > 0 {
        ui.say(&format!(
            "{sampled} continuations from {states} states in {:.0} s ({:.0} a second), {:.0} s of play before",
            seconds[1],
            sampled as f64 / seconds[1].max(1e-9),
            seconds[0]
        ));
    }
    if failed > 0 {
        ui.say(&format!(
            "warning: {failed} continuations failed in the environment or the sampler and do not count"
        ));
    }
    Ok(Some(parts.join(tasks.len(), output)?))
}

fn count(
    analysis: &AnalysisSettings<'_>,
    source: &TruthSource,
    tasks: &[Task],
    ui: &mut Ui,
) -> anyhow::Result<Vec<TruthLine>> {
    let total = tasks.len() * source.continuations;
    let batch = play_groups(analysis, tasks, source.continuations, &mut |progress| {
        let finished = progress.finished.load(std::sync::atomic::Ordering::Relaxed);
        ui.tasks("samples", finished, total, progress.solved.load(std::sync::atomic::Ordering::Relaxed));
    })?;
    ui.finish();
    let settings =
        TreeSettings { group_size: source.samples, gamma: source.gamma, ..TreeSettings::default() };
    let mut lines = Vec::new();
    for (place, group) in batch.groups.into_iter().enumerate() {
        let truth = tree_truth(&group.trajectories, &settings);
        let counted = group.trajectories.into_iter().zip(truth).take(TREE_GROUPS * source.samples);
        lines.extend(counted.enumerate().map(|(index, (trajectory, truth))| {
            let group = index / source.samples;
            line(trajectory, place * TREE_GROUPS + group, group, truth, source)
        }));
    }
    Ok(lines)
}

fn line(
    trajectory: Trajectory,
    group: usize,
    step: usize,
    truth: Vec<Option<TurnTruth>>,
    source: &TruthSource,
) -> TruthLine {
    let trajectory = Trajectory { group, step: step as u64, ..trajectory };
    TruthLine { trajectory, truth, benchmark: source.clone() }
}

fn text(summary: &TruthSummary, seconds: f64, output: &Path) -> String {
    let reliability = |estimate: &Option<turnwise_eval::compare::Estimate>| number(estimate.as_ref(), 2);
    format!(
        "{} tasks, {} trajectories ({:.1} % solved), {} turns with a truth, {:.1} continuations from the state of each\n  \
         A*: standard deviation {:.3}, mean error {:.3}; reliability by split halves {}, within trajectories {}\n  \
         {seconds:.0} s; written to {}; next: turnwise benchmark score {} --all",
        summary.tasks,
        summary.trajectories,
        100.0 * summary.solved,
        summary.turns,
        summary.continuations,
        summary.deviation,
        summary.error,
        reliability(&summary.reliability),
        reliability(&summary.within_reliability),
        output.display(),
        output.display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_named_after_its_run_and_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("tiny");
        let policy = run.join("checkpoints/step-000003/policy");
        std::fs::create_dir_all(&policy).unwrap();
        assert_eq!(policy_name(&policy), "policy");
        std::fs::write(run.join("config.toml"), "").unwrap();
        std::fs::write(run.join("panel.json"), "{}").unwrap();
        assert_eq!(policy_name(&policy), "tiny/step-000003");
    }
}
