use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use turnwise_train::config::{self, ConfigSource};
use turnwise_train::{Observer, Position, Run, RunDirectory, RunEnd};

use crate::memory;
use crate::ui::{self, Ui};
use crate::worlds;

/// Train a config.
#[derive(Args)]
pub(crate) struct TrainArgs {
    /// Config files (later ones take precedence) and overrides, e.g. train.steps=20.
    #[arg(value_name = "CONFIG|KEY=VALUE")]
    sources: Vec<String>,
    /// Method preset (replaces the config's method), or a full base config.
    #[arg(long)]
    preset: Option<String>,
    /// Resume this run from its newest complete checkpoint; KEY=VALUE overrides apply to the
    /// remaining steps.
    #[arg(long, value_name = "RUN", conflicts_with = "preset")]
    resume: Option<PathBuf>,
    /// With --resume: continue from this checkpoint (step-12, sft-300) and set later ones aside.
    #[arg(long, value_name = "CHECKPOINT", requires = "resume")]
    from: Option<Position>,
    /// Reuse the SFT warm start of this run, whose SFT settings must equal the config's.
    #[arg(long, value_name = "RUN", conflicts_with = "resume")]
    warm_start: Option<PathBuf>,
    /// Parent folder of the run directory.
    #[arg(long, default_value = "runs", conflicts_with = "resume")]
    runs: PathBuf,
    /// Check everything and print the memory estimate; write nothing.
    #[arg(long, conflicts_with = "resume")]
    dry_run: bool,
    /// Start even if the estimated memory exceeds what this machine or device has.
    #[arg(long, conflicts_with = "resume")]
    ignore_memory: bool,
    /// Stop as on Ctrl-C when standard input closes, so that killing a sweep stops its runs.
    #[arg(long, hide = true)]
    stop_at_end_of_input: bool,
}

/// Train a model on your own conversations (MODEL DATA), or only run a config's SFT warm start.
///
/// MODEL is a model folder, a run or a hub model. DATA contains OpenAI messages, ShareGPT, ATIF or
/// another format that `turnwise credit` reads. The loss covers only assistant messages. By default
/// all weights are trained; policy.lora.rank=16 trains an adapter. Useful keys: sft.data.epochs,
/// sft.data.held_out, sft.data.train_on=last, sft.learning_rate, sft.batch_tokens,
/// rollout.max_model_len, name.
#[derive(Args)]
pub(crate) struct SftArgs {
    /// A model and a data file, or config files (.toml; later ones take precedence), plus
    /// overrides, e.g. sft.data.epochs=3.
    #[arg(value_name = "MODEL DATA|CONFIG|KEY=VALUE", required_unless_present = "preset")]
    sources: Vec<String>,
    /// Method preset (replaces the config's method), or a full base config.
    #[arg(long)]
    preset: Option<String>,
    /// Parent folder of the run directory.
    #[arg(long, default_value = "runs")]
    runs: PathBuf,
    /// Start even if the estimated memory exceeds what this machine or device has.
    #[arg(long)]
    ignore_memory: bool,
    /// Stop as on Ctrl-C when standard input closes, so that killing a sweep stops its runs.
    #[arg(long, hide = true)]
    stop_at_end_of_input: bool,
}

/// Separates files from overrides. An override is an argument `KEY=VALUE` that is not an existing
/// file's path; its key has no `/`.
pub(crate) fn split_arguments(arguments: Vec<String>) -> (Vec<PathBuf>, Vec<String>) {
    let is_override = |argument: &String| {
        let key = argument.split_once('=').map(|(key, _)| key);
        key.is_some_and(|key| !key.contains('/')) && !Path::new(argument).is_file()
    };
    let (overrides, files): (Vec<String>, Vec<String>) = arguments.into_iter().partition(is_override);
    (files.into_iter().map(PathBuf::from).collect(), overrides)
}

pub(crate) fn run(args: TrainArgs) -> anyhow::Result<ExitCode> {
    if args.stop_at_end_of_input {
        ui::stop_at_end_of_input()?;
    }
    if args.dry_run {
        return dry_run(args);
    }
    train(|observer| open(args, observer))
}

pub(crate) fn open(args: TrainArgs, observer: &mut dyn Observer) -> anyhow::Result<Run> {
    if let Some(root) = args.resume {
        let (files, overrides) = split_arguments(args.sources);
        if let Some(file) = files.first() {
            anyhow::bail!(
                "{}: a resumed run has its own config; change settings with key=value",
                file.display()
            );
        }
        RunDirectory::open(&root)?;
        let source = ConfigSource { overrides, ..worlds::source(ConfigSource::of_run(&root)) };
        let run = worlds::run(config::load(&source)?).directory(&root);
        let run = match args.from {
            Some(position) => run.checkpoint(position),
            None => run,
        };
        return run.resume(observer).map_err(|error| source.locate(error).into());
    }
    let source = source_of(args.sources, args.preset)?;
    let config = config::load(&source)?;
    let root = args.runs.join(&config.name);
    let run = worlds::run(config).directory(root).ignore_memory(args.ignore_memory);
    let started = match args.warm_start {
        Some(warm) => run.start_from(&warm, observer),
        None => run.start(observer),
    };
    started.map_err(|error| source.locate(error).into())
}

fn source_of(sources: Vec<String>, preset: Option<String>) -> anyhow::Result<ConfigSource> {
    let (files, overrides) = split_arguments(sources);
    if files.is_empty() && overrides.is_empty() && preset.is_none() {
        anyhow::bail!(
            "nothing to train: give a config file or --preset NAME (turnwise config presets lists them), or --resume RUN"
        );
    }
    Ok(worlds::source(ConfigSource { preset, files, overrides, ..ConfigSource::default() }))
}

fn dry_run(args: TrainArgs) -> anyhow::Result<ExitCode> {
    let source = source_of(args.sources, args.preset)?;
    let config = config::load(&source)?;
    let name = config.name.clone();
    let mut ui = Ui::new();
    let run = worlds::run(config).directory(args.runs.join(&name));
    let found = run.preflight(args.warm_start.as_deref(), &mut ui).map_err(|error| source.locate(error))?;
    ui.finish();
    ui::print(&format!("the config of run `{name}` is sound (turnwise config show prints it)"));
    ui::print(&found.to_string());
    found.check_memory(args.ignore_memory)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn run_sft(args: SftArgs) -> anyhow::Result<ExitCode> {
    if args.stop_at_end_of_input {
        ui::stop_at_end_of_input()?;
    }
    let (files, mut overrides) = split_arguments(args.sources);
    let is_config = |file: &PathBuf| file.extension().is_some_and(|ending| ending == "toml");
    let files = match files.as_slice() {
        [model, data] if !is_config(model) && !is_config(data) => {
            if let Some(preset) = &args.preset {
                anyhow::bail!(
                    "--preset {preset}: presets are for configs, and MODEL DATA needs none; leave it out"
                );
            }
            overrides = conversation_settings(model, data, overrides);
            Vec::new()
        }
        [] => files,
        _ if files.iter().all(is_config) => files,
        _ => anyhow::bail!(
            "give MODEL DATA (a model, then a file of conversations), or config files that end in .toml: {}",
            files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" ")
        ),
    };
    let preset = args.preset;
    let source = worlds::source(ConfigSource { preset, files, overrides, ..ConfigSource::default() });
    let mut config = config::load(&source)?;
    if !config.has_sft() {
        anyhow::bail!("sft.steps is 0, so nothing would be trained; set sft.steps=N, or give MODEL DATA");
    }
    config.train.steps = 0;
    let root = args.runs.join(&config.name);
    let run = worlds::run(config).directory(root).ignore_memory(args.ignore_memory);
    train(|observer| run.start(observer).map_err(|error| source.locate(error).into()))
}

fn conversation_settings(model: &Path, data: &Path, given: Vec<String>) -> Vec<String> {
    let text = |path: &Path| toml::Value::from(path.to_string_lossy().as_ref()).to_string();
    let name = data.file_stem().map(|stem| stem.to_string_lossy().replace(['.', ' '], "-"));
    let adapts = given.iter().any(|argument| argument.starts_with("policy.lora"));
    // Usual SFT rates for pretrained models; the config's default is for models from scratch.
    let rate = if adapts { "2e-4" } else { "2e-5" };
    let mut settings = vec![
        format!("name={}", toml::Value::from(format!("sft-{}", name.unwrap_or_default()))),
        format!("policy.model={}", text(model)),
        format!("sft.data.path={}", text(data)),
        format!("sft.learning_rate={rate}"),
        "sft.warmup=5".into(),
        "sft.batch_tokens=8000".into(),
        // Conversations use the chat template, not an environment's prompts.
        "prompt.layout=windowed".into(),
        "rollout.max_model_len=2048".into(),
    ];
    settings.extend(given);
    settings
}

fn train(open: impl FnOnce(&mut dyn Observer) -> anyhow::Result<Run>) -> anyhow::Result<ExitCode> {
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
            if run.config().needs_world() {
                ui::print(&format!("  evaluate again   turnwise eval {root}"));
                ui::print(&format!("  look at turns    turnwise view {root}"));
            } else {
                ui::print(&format!("  talk to it       turnwise chat {root}"));
                ui::print(&format!("  continue with RL turnwise train CONFIG policy.model={root}"));
                ui::print(&format!("  its curves       turnwise view {root}"));
            }
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
