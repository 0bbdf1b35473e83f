use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use turnwise_env::panel::Panel;
use turnwise_eval::{Agent, Evaluation, PlaySettings, Rate, evaluate};
use turnwise_policy::Policy;
use turnwise_policy::run_folder::{checkpoint_label, enclosing_run, is_run};
use turnwise_train::config::{Config, ConfigSource, overridden};
use turnwise_train::record::directory::{RunDirectory, write_atomically, write_trajectories};
use turnwise_train::record::panels;
use turnwise_train::record::position::Position;
use turnwise_train::rollout::EnvRunner;
use turnwise_train::run::best;
use turnwise_train::setup::World;
use turnwise_train::{Event, Observer as _, TrainError};

use super::output::{check_output, is_same_file};
use super::seed;
use super::train::split_arguments;
use crate::library::EvaluationProgress;
use crate::registries::registries;
use crate::ui::{self, Ui};
use crate::worlds::{self, load_of_run, load_to_play};

/// Evaluate a run, checkpoint or model.
#[derive(Args)]
pub(crate) struct EvalArgs {
    /// A run directory (newest checkpoint), a checkpoint, a model folder, or a hub model
    /// (ORG/NAME).
    policy: PathBuf,
    /// Config files and overrides, e.g. eval.tasks=64 [default: the run's or checkpoint's own
    /// config].
    #[arg(value_name = "CONFIG|KEY=VALUE")]
    sources: Vec<String>,
    /// Config override, e.g. eval.tasks=64; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Checkpoint in the run: `best` (train.keep_best), step-12 or sft-300 [default: the newest].
    #[arg(long, value_name = "NAME")]
    checkpoint: Option<String>,
    /// Environment to evaluate in; if it is not the config's, its default prompts and splits are
    /// used [default: from the config].
    #[arg(long)]
    env: Option<String>,
    /// Prompting: plain (as configured), ReAct (a thought and an action each turn), or Reflexion
    /// (ReAct that reflects after a failure and retries).
    #[arg(long, value_enum, default_value_t)]
    agent: AgentName,
    /// Maximum number of Reflexion trials per task [default: 3].
    #[arg(long)]
    trials: Option<usize>,
    /// Splits to evaluate [default: from the config].
    #[arg(long)]
    split: Vec<String>,
    /// Number of tasks per split; 0 for all [default: from the config].
    #[arg(long)]
    tasks: Option<usize>,
    /// Sampling temperature; 0 is greedy [default: from the config].
    #[arg(long)]
    temperature: Option<f32>,
    /// Seed for sampling [default: from the config].
    #[arg(long, value_parser = seed)]
    seed: Option<u64>,
    /// Write the results as JSON to this file. If the path ends in `/`, it is a folder, and the
    /// file in it is named after the checkpoint.
    #[arg(short = 'o', long = "output", value_name = "FILE|FOLDER/", alias = "out")]
    out: Option<PathBuf>,
    /// Write all trajectories to FILE as JSON lines (compressed if it ends in .zst).
    #[arg(long, value_name = "FILE")]
    trajectories: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum AgentName {
    #[default]
    Plain,
    React,
    Reflexion,
}

impl From<AgentName> for Agent {
    fn from(name: AgentName) -> Self {
        match name {
            AgentName::Plain => Self::Plain,
            AgentName::React => Self::React,
            AgentName::Reflexion => Self::Reflexion,
        }
    }
}

const TRIALS: usize = 3;

pub(crate) fn run(args: EvalArgs) -> anyhow::Result<ExitCode> {
    let ui = RefCell::new(Ui::new());
    evaluated(
        args,
        ui::stop_on_interrupt()?,
        &mut |note| ui.borrow_mut().event(Event::Note(note)),
        &mut |_, finished, total, solved| ui.borrow_mut().tasks("evaluate", finished, total, solved),
        &mut |result| {
            ui.borrow_mut().finish();
            ui::print(&table(result));
        },
    )?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn evaluated(
    mut args: EvalArgs,
    stop: &AtomicBool,
    note: &mut dyn FnMut(String),
    progress: &mut EvaluationProgress<'_>,
    done: &mut dyn FnMut(&Evaluation),
) -> anyhow::Result<Vec<Evaluation>> {
    check(&mut args)?;
    let agent = args.agent.into();
    let policy = Policy::load_with(&args.policy, &mut *note)?;
    let sources = args.sources.iter().chain(&args.settings).cloned().collect();
    let mut config = config_of(&args.policy, &policy, sources, args.env.clone(), agent)?;
    let own = if args.tasks.is_none() { own_panels(&args.policy, &config)? } else { None };
    Agent::configure(agent, &mut config, &registries())?;
    configure(&mut config, &args)?;
    let world = World::new(&config.env, &registries(), &config.splits(), &mut *note)?;
    let panels = config.eval.splits.iter().map(|split| {
        let pinned = match &own {
            Some(run) => panels::pinned(run, split, world.task_set())?,
            None => None,
        };
        match pinned {
            Some(panel) => Ok(panel),
            None => panels::pin_first(world.task_set(), split, config.eval.tasks),
        }
    });
    let panels: Vec<Panel> = panels.collect::<Result<_, _>>()?;
    if let Some(path) = &args.out {
        check_replaced(path, &args.policy, &config, &panels, agent)?;
    }
    let runner = runner_of(&config, world, &policy)?;
    let mut results = Vec::new();
    let (mut played, mut first_group) = (Vec::new(), 0);
    for panel in &panels {
        let settings = PlaySettings {
            config: &config,
            runner: &runner,
            temperature: config.eval.temperature,
            agent,
            trials: args.trials.unwrap_or(TRIALS),
            stop,
        };
        let (result, mut trajectories) = evaluate(&settings, &policy.weights, panel, |tasks| {
            let (finished, solved) =
                (tasks.finished.load(Ordering::Relaxed), tasks.solved.load(Ordering::Relaxed));
            progress(&panel.split, finished, panel.tasks.len(), solved);
        })?;
        done(&result);
        results.push(result);
        // Group indices restart at 0 in each split, but must differ in the combined file.
        for trajectory in &mut trajectories {
            trajectory.group += first_group;
        }
        first_group += panel.tasks.len();
        played.extend(trajectories);
    }
    if let Some(path) = args.out {
        let text = serde_json::to_string_pretty(&results)? + "\n";
        write_atomically(&path, text.as_bytes())?;
    }
    if let Some(path) = args.trajectories {
        write_trajectories(&path, played.iter())?;
    }
    Ok(results)
}

/// Checks the options first, so that an unwritable file does not waste hours of rollouts.
fn check(args: &mut EvalArgs) -> anyhow::Result<()> {
    match args.trials {
        Some(0) => anyhow::bail!("--trials 0: a task must be tried at least once"),
        Some(trials) if args.agent != AgentName::Reflexion => {
            anyhow::bail!("--trials {trials}: only --agent reflexion tries a task again");
        }
        _ => {}
    }
    if let Some(name) = &args.checkpoint {
        let run = RunDirectory::open(&args.policy)
            .context("--checkpoint chooses one of a run's checkpoints, so that a run directory is needed")?;
        args.policy = best::named(&run, name)?;
    }
    args.out = args.out.take().map(|out| result_file(out, &args.policy)).transpose()?;
    for (option, path) in [("--output", &args.out), ("--trajectories", &args.trajectories)] {
        path.as_deref().map_or(Ok(()), |path| check_output(option, path))?;
    }
    if let (Some(out), Some(trajectories)) = (&args.out, &args.trajectories)
        && is_same_file(out, trajectories)
    {
        anyhow::bail!("--output and --trajectories name the same file; give each its own");
    }
    Ok(())
}

/// Rejects an output that would replace an evaluation from training with a different one, because
/// `turnwise compare` and `train.keep_best` read the replaced file.
fn check_replaced(
    path: &Path,
    policy: &Path,
    config: &Config,
    panels: &[Panel],
    agent: Agent,
) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| folder.file_name().is_some_and(|name| name == "eval"));
    // Pipes and devices have no content, and reading them may block.
    let Some(run) = folder.and_then(Path::parent).filter(|run| is_run(run) && path.is_file()) else {
        return Ok(());
    };
    let read = |text: String| serde_json::from_str::<Vec<Evaluation>>(&text).ok();
    let Some(old) = std::fs::read_to_string(path).ok().and_then(read) else { return Ok(()) };
    let is_same = |old: &Evaluation| {
        let has_panel = panels.iter().any(|panel| panel.split == old.split && panel.hash == old.panel);
        let sampling = (config.eval.temperature, config.seed, agent);
        has_panel && (old.temperature, old.seed, old.agent) == sampling
    };
    let is_of_run = enclosing_run(policy).is_some_and(|own| is_same_file(&own, run));
    let own = load_to_play(ConfigSource::of_run(run))?;
    let has_settings =
        same_world(&own, config) && (&own.prompt, &own.rollout) == (&config.prompt, &config.rollout);
    anyhow::ensure!(
        is_of_run && has_settings && old.iter().all(is_same),
        "--output {}: holds the training's own evaluation, of another run, or of other splits, tasks, settings, seed, temperature or \
         agent; name another folder",
        path.display()
    );
    Ok(())
}

/// Compares environment settings except `env.data`, which may have moved since training.
fn same_world(one: &Config, other: &Config) -> bool {
    let world = |config: &Config| {
        let mut env = config.env.clone();
        env.settings.remove("data");
        env
    };
    world(one) == world(other)
}

fn configure(config: &mut Config, args: &EvalArgs) -> anyhow::Result<()> {
    config.seed = args.seed.unwrap_or(config.seed);
    if !args.split.is_empty() {
        config.eval.splits.clone_from(&args.split);
    }
    config.eval.tasks = args.tasks.unwrap_or(config.eval.tasks);
    config.eval.temperature = args.temperature.unwrap_or(config.eval.temperature);
    config.check(&registries())?;
    anyhow::ensure!(
        !config.eval.splits.is_empty(),
        "eval.splits: is empty, so that there is nothing to evaluate; name a split with --split"
    );
    Ok(())
}

/// Returns the path of the result file. If `out` is a folder, the file in it is named after the
/// checkpoint, as `turnwise compare --evaluations` expects.
fn result_file(out: PathBuf, policy: &Path) -> anyhow::Result<PathBuf> {
    let label = checkpoint_label(policy);
    let is_folder = out.is_dir() || out.as_os_str().as_encoded_bytes().ends_with(b"/");
    let Some(label) = label else {
        anyhow::ensure!(
            !is_folder,
            "--output {} is a folder, where results are named after a run's checkpoint, and {} is none: name a file",
            out.display(),
            policy.display()
        );
        return Ok(out);
    };
    if is_folder {
        return Ok(out.join(format!("{label}.json")));
    }
    let named = out.file_stem().and_then(|name| name.to_str()).and_then(|name| name.parse::<Position>().ok());
    if let Some(named) = named.filter(|named| named.label() != label) {
        anyhow::bail!(
            "--output {} names the checkpoint {}, and {label} of {} is evaluated: give --checkpoint, or the folder alone \
             (with a / at its end)",
            out.display(),
            named.label(),
            policy.display()
        );
    }
    Ok(out)
}

/// Returns the policy's run if the run's panels (its pinned evaluation tasks) apply to this config.
/// `env.data` may differ, because the data may have moved; the panels verify the tasks.
fn own_panels(policy: &Path, config: &Config) -> anyhow::Result<Option<RunDirectory>> {
    let Some(run) = enclosing_run(policy).filter(|run| run.join("panel.json").is_file()) else {
        return Ok(None);
    };
    let own = load_of_run(&run)?;
    let same = own.eval.tasks == config.eval.tasks && same_world(&own, config);
    Ok(if same { Some(RunDirectory::open(&run)?) } else { None })
}

pub(crate) fn config_of(
    path: &Path,
    policy: &Policy,
    sources: Vec<String>,
    env: Option<String>,
    agent: Agent,
) -> anyhow::Result<Config> {
    let (mut files, overrides) = split_arguments(sources);
    let own = enclosing_run(path).map(|run| run.join("config.toml"));
    let plain_model = own.is_none() && files.is_empty() && !policy.tokenizer.end_tokens().is_empty();
    if let Some(own) = own {
        files.insert(0, own);
    }
    let mut first = Vec::new();
    if plain_model {
        let named = overridden(&overrides, "env.kind")?;
        let kind = env.or(named).unwrap_or_else(|| Config::default().env.kind);
        first = model_defaults(policy, &kind, agent)?;
        first.push(format!("env.kind={kind}"));
    } else if let Some(kind) = env {
        let before = load_to_play(ConfigSource { files: files.clone(), ..ConfigSource::default() })?;
        if before.env.kind != kind {
            let name = before.prompt.template.replacen(&before.env.kind, &kind, 1);
            let environments = worlds::registry();
            let usual = environments.kind(&kind)?.eval_defaults().template;
            let template = if environments.template(&name).is_some() { &name } else { usual };
            first = world_defaults(&kind)?;
            first.push(format!("prompt.template={template}"));
        }
        first.push(format!("env.kind={kind}"));
    }
    first.extend(overrides);
    Ok(load_to_play(ConfigSource { files, overrides: first, ..ConfigSource::default() })?)
}

pub(crate) fn runner_of(config: &Config, world: World, policy: &Policy) -> Result<EnvRunner, TrainError> {
    let vision = policy.weights.config().vision.as_ref();
    EnvRunner::new(config, &registries(), world, Arc::clone(&policy.tokenizer), vision)
}

fn world_defaults(kind: &str) -> anyhow::Result<Vec<String>> {
    let registry = worlds::registry();
    let usual = registry.kind(kind)?.eval_defaults();
    let splits: Vec<String> = usual.splits.iter().map(|split| format!("{split:?}")).collect();
    Ok(vec![
        format!("env.kind={kind}"),
        format!("env.max_turns={}", usual.max_turns),
        format!("eval.splits=[{}]", splits.join(", ")),
    ])
}

/// Returns a hub model's settings: two turns of history, 4,096 prompt tokens and 512 response
/// tokens. Agents that keep the whole history get a context four times as long.
fn model_defaults(policy: &Policy, kind: &str, agent: Agent) -> anyhow::Result<Vec<String>> {
    let wanted = if agent == Agent::Plain { 4096 + 512 } else { 4 * (4096 + 512) };
    let context = policy.weights.config().max_position_embeddings.min(wanted);
    let mut defaults = world_defaults(kind)?;
    let template = worlds::registry().kind(kind)?.eval_defaults().template.to_owned();
    defaults.extend([
        format!("prompt.template={template}"),
        "prompt.layout=windowed".to_owned(),
        "prompt.history=2".to_owned(),
        "rollout.max_response_tokens=512".to_owned(),
        format!("rollout.max_model_len={context}"),
    ]);
    Ok(defaults)
}

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
    for trial in &result.trials {
        text.push_str(&format!(
            "  trial {}: {} of {} solved, {} of {} = {:.1} % so far\n",
            trial.trial,
            trial.solved.successes,
            trial.solved.trials,
            trial.success.successes,
            trial.success.trials,
            100.0 * trial.success.rate
        ));
    }
    for (kind, result) in &result.kinds {
        text.push_str(&row(kind, &result.success, result.mean_turns));
    }
    text.push_str(&row("all", &result.success, result.mean_turns));
    if let Some(scenarios) = &result.scenarios {
        text.push_str(&format!(
            "  {} of {} scenarios with all tasks solved = {:.1} %\n",
            scenarios.successes,
            scenarios.trials,
            100.0 * scenarios.rate
        ));
    }
    if result.failed > 0 {
        text.push_str(&format!(
            "  {} tasks failed in the environment or the sampler and are not counted\n",
            result.failed
        ));
    }
    if result.resampled > 0 {
        text.push_str(&format!(
            "  {} episodes failed and were played again with other random numbers\n",
            result.resampled
        ));
    }
    if result.overflowed > 0 {
        text.push_str(&format!(
            "  {} tasks ended because their next prompt did not fit rollout.max_model_len\n",
            result.overflowed
        ));
    }
    text.push_str(&format!(
        "  invalid responses {:.1} %{}, {:.1} s",
        100.0 * result.invalid_action_frac,
        result.inadmissible_rate.map_or_else(String::new, |rate| {
            format!(", actions that the environment did not offer {:.1} %", 100.0 * rate)
        }),
        result.seconds
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_that_failed_are_said_without_blaming_the_world_alone() {
        let text = r#"{"split":"s","panel":"p","temperature":0.0,"seed":0,"success":{"successes":1,"trials":2,"rate":0.5,
            "low":0.1,"high":0.9},"kinds":{},"mean_turns":1.0,"mean_return":0.5,"failed":3,"invalid_action_frac":0.0,
            "seconds":1.0}"#;
        let result: Evaluation = serde_json::from_str(text).unwrap();
        for said in [table(&result), crate::ui::one_line("step 1", &result)] {
            assert!(said.contains("3 tasks failed in the environment or the sampler"), "{said}");
        }
        assert!(!table(&result).contains("scenarios"));
        let grouped = Evaluation { scenarios: Some(result.success), ..result.clone() };
        assert!(table(&grouped).contains("1 of 2 scenarios with all tasks solved = 50.0 %"));
        let long = Evaluation { overflowed: 2, ..result.clone() };
        assert!(table(&long).contains("2 tasks ended because their next prompt did not fit"));
        assert!(!table(&result).contains("did not fit"));
        let repeated = Evaluation { resampled: 4, ..result.clone() };
        assert!(table(&repeated).contains("4 episodes failed and were played again"));
        assert!(!table(&result).contains("played again"));
        let whole = Evaluation { failed: 0, ..result };
        assert!(
            !table(&whole).contains("failed") && !crate::ui::one_line("step 1", &whole).contains("failed")
        );
    }
}
