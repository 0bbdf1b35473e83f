pub(in crate::commands) mod settings;
pub(super) mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args;
use serde::Deserialize;
use turnwise_core::{Batch, PerTurn};
use turnwise_credit::{CreditConfig, CreditInputs, CreditReport, ModelInputs, Pipeline, TurnField};
use turnwise_decompose::turnrd::TurnRd;
use turnwise_model::{LearnerConfig, NativeLearner};
use turnwise_policy::Policy;
use turnwise_text::Tokenizer;
use turnwise_train::config::{DecomposerConfig, TurnRdSettings};
use turnwise_train::{Phase, Position, RunDirectory, turnrd_credits};
use turnwise_trajectory_io::{Dump, DumpBatch, Format, ReadOptions, Row, read, write_rows};

use super::output::check_output_of;
use crate::registries::methods;
use crate::ui;

/// Compute advantages for trajectories you already have.
#[derive(Args)]
pub(crate) struct CreditArgs {
    /// Trajectories: JSON lines (from a run, verl or verifiers, OpenAI messages, ShareGPT, or
    /// hand-written; may be .zst), ATIF (or a Harbor job folder), Parquet (messages, TRL), or a run
    /// directory (its newest step).
    file: PathBuf,
    /// Method preset.
    #[arg(long, value_name = "NAME")]
    preset: String,
    #[command(flatten)]
    switches: Switches,
    #[command(flatten)]
    reading: Reading,
    /// Trained TurnRD network (turnrd/round-NNNN in a run), required by has-turnrd, has-attention
    /// and their -film variants; only for trajectories from a Turnwise run.
    #[arg(long, value_name = "CHECKPOINT", requires = "policy")]
    turnrd: Option<PathBuf>,
    /// Policy whose hidden states TurnRD reads: a run, a checkpoint or a model folder.
    #[arg(long, value_name = "MODEL", requires = "turnrd")]
    policy: Option<PathBuf>,
    /// Maximum number of tokens in a turn, or in the goal, over which TurnRD averages hidden states
    /// [default: decomposer.pool_tokens of the network's run].
    #[arg(long, value_name = "N", requires = "turnrd", value_parser = clap::value_parser!(u32).range(1..))]
    pool_tokens: Option<u32>,
    /// Sentence encoder (model folder) for salt.matching=embedding [default: hashed character
    /// n-grams].
    #[arg(long, value_name = "DIR")]
    encoder: Option<PathBuf>,
    /// Explain how each advantage was computed, stage by stage.
    #[arg(long)]
    explain: bool,
    /// Write one row per trajectory to this file: .jsonl, .jsonl.zst or .parquet.
    #[arg(short, long, value_name = "FILE", alias = "out")]
    output: Option<PathBuf>,
    /// Number of groups to print; --output always writes all groups.
    #[arg(long, value_name = "N", default_value_t = 4)]
    groups: usize,
}

#[derive(Args)]
pub(super) struct Switches {
    /// Method setting, e.g. estimator.omega=0.5 or aem.lambda=2; repeatable.
    #[arg(long, value_name = "KEY=VALUE", requires = "preset")]
    set: Vec<String>,
    /// Use the settings that reproduce verl-agent's numbers (grpo, rloo, gigpo, hgpo).
    #[arg(long, requires = "preset")]
    verl_agent: bool,
    /// Seed for methods that use randomness.
    #[arg(long, default_value_t = 0, requires = "preset")]
    pub(super) seed: u64,
}

impl Switches {
    pub(super) fn config(&self, preset: &str) -> anyhow::Result<CreditConfig> {
        settings::config(preset, self.verl_agent, &self.set)
    }
}

#[derive(Args)]
pub(super) struct Reading {
    /// File format: auto, turnwise, verl, trl, verifiers, messages, sharegpt or atif.
    #[arg(long, default_value = "auto", value_parser = format)]
    format: FormatChoice,
    /// Reward column in a TRL file, with its weight; repeatable [default: all reward columns, with
    /// weight 1].
    #[arg(long, value_name = "COLUMN[=WEIGHT]", value_parser = reward)]
    reward: Vec<(String, f64)>,
}

impl Reading {
    pub(super) fn options(&self) -> ReadOptions {
        ReadOptions { format: self.format.0, rewards: self.reward.clone() }
    }

    pub(super) fn is_automatic(&self) -> bool {
        self.format.0.is_none() && self.reward.is_empty()
    }
}

#[derive(Clone, Copy)]
struct FormatChoice(Option<Format>);

fn format(text: &str) -> Result<FormatChoice, String> {
    if text == "auto" {
        Ok(FormatChoice(None))
    } else {
        text.parse().map(|format| FormatChoice(Some(format)))
    }
}

fn reward(text: &str) -> Result<(String, f64), String> {
    match text.split_once('=') {
        None => Ok((text.to_owned(), 1.0)),
        Some((name, weight)) => {
            let weight = weight.parse().map_err(|_| format!("the weight `{weight}` is no number"))?;
            Ok((name.to_owned(), weight))
        }
    }
}

struct Learned {
    network: TurnRd,
    policy: NativeLearner,
    tokenizer: Arc<Tokenizer>,
    pool_tokens: usize,
}

impl Learned {
    fn load(network: &Path, policy: &Path, pool_tokens: Option<u32>) -> anyhow::Result<Self> {
        let pool_tokens = match pool_tokens {
            Some(tokens) => tokens as usize,
            None => turnrd_settings_of(network)?.map(|settings| settings.pool_tokens).with_context(|| {
                format!(
                    "{}: the network lies in no run, so that its decomposer.pool_tokens is not known; name it with \
                     --pool-tokens N (the default of runs is {})",
                    network.display(),
                    TurnRdSettings::default().pool_tokens
                )
            })?,
        };
        let network = TurnRd::load(network)?;
        let Policy { weights, tokenizer } = Policy::load(policy)?;
        let policy = NativeLearner::new(weights, LearnerConfig::default())?;
        Ok(Self { network, policy, tokenizer, pool_tokens })
    }

    fn credits(&mut self, batch: &Batch) -> anyhow::Result<PerTurn<f64>> {
        Ok(turnrd_credits(batch, &self.network, self.pool_tokens, &mut self.policy, &self.tokenizer)?)
    }
}

/// Returns the TurnRD settings of the run that contains a network. Only the table `decomposer` is
/// parsed, because other tables may name environments or methods that this build lacks.
pub(super) fn turnrd_settings_of(network: &Path) -> anyhow::Result<Option<TurnRdSettings>> {
    #[derive(Deserialize)]
    struct Decomposed {
        decomposer: DecomposerConfig,
    }
    let network = network.canonicalize().with_context(|| network.display().to_string())?;
    let Some(run) = network.parent().and_then(Path::parent) else { return Ok(None) };
    let path = run.join("config.toml");
    if !path.is_file() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let config: Decomposed = toml::from_str(&text).with_context(|| path.display().to_string())?;
    Ok(match config.decomposer {
        DecomposerConfig::Turnrd(settings) => Some(settings),
        DecomposerConfig::None | DecomposerConfig::Judge(_) => None,
    })
}

fn check_models(args: &CreditArgs, pipeline: &Pipeline) -> anyhow::Result<()> {
    let preset = &args.preset;
    let of_models = pipeline.required_inputs();
    if args.encoder.is_some() && !of_models.embeddings {
        bail!(
            "--encoder: `{preset}` matches no states by embedding; leave it out, or use a preset of SALT with --set \
             salt.matching=embedding"
        );
    }
    if args.turnrd.is_some() && !of_models.credits {
        bail!("--turnrd: `{preset}` takes no credits of a decomposer; leave it out, or use has-turnrd");
    }
    Ok(())
}

/// Returns the trajectories of a run's newest step. Other paths are returned unchanged.
fn trajectories_of(path: &Path) -> anyhow::Result<PathBuf> {
    let Ok(run) = RunDirectory::open(path) else { return Ok(path.to_owned()) };
    let Some(step) = run.trajectory_steps()?.pop() else {
        bail!(
            "{}: the run has no trajectories yet (it saves those of its training steps, if train.save_trajectories is on)",
            path.display()
        );
    };
    let file = run.trajectories(Position { phase: Phase::Rl, step });
    ui::print(&format!("trajectories: {}", file.display()));
    Ok(file)
}

pub(crate) fn run(args: &CreditArgs) -> anyhow::Result<ExitCode> {
    let file = &trajectories_of(&args.file)?;
    if let Some(path) = &args.output {
        check_output_of("--output", path, file, "trajectories")?;
        turnwise_trajectory_io::check_rows_name(path)?;
    }
    let mut config = args.switches.config(&args.preset)?;
    if let Some(folder) = &args.encoder {
        config.encoder.clone_from(folder);
    }
    let pipeline = Pipeline::with_registry(&config, &methods().credit)?;
    check_models(args, &pipeline)?;
    let dump = read(file, &args.reading.options())?;
    dump.require_rewards()?;
    let mut learned = match (&args.turnrd, &args.policy) {
        (Some(network), Some(policy)) => Some(Learned::load(network, policy, args.pool_tokens)?),
        _ => None,
    };
    for (method, field) in &pipeline.fields() {
        if *field == TurnField::Credit && learned.is_some() {
            continue;
        }
        require(&dump, &args.preset, method, *field)?;
    }
    let embedder = turnwise_train::embedder(&config)?;
    let (mut rows, mut shown) = (Vec::new(), Vec::new());
    let several_steps = dump.batches.len() > 1;
    for step in &dump.batches {
        let credits = match &mut learned {
            Some(learned) => learned.credits(&step.batch)?,
            None => step.credits(),
        };
        let model_inputs =
            ModelInputs { values: Some(step.values()), credits: Some(credits), ..ModelInputs::default() };
        let inputs = CreditInputs::new(&step.batch)
            .at(args.switches.seed, step.step)
            .with_embedder(&*embedder)
            .with_model_inputs(&model_inputs);
        let report = pipeline.report(&inputs, args.explain).with_context(|| {
            let place = if several_steps { format!(", step {}", step.step) } else { String::new() };
            format!("{}{place}", file.display())
        })?;
        for (number, group) in rows_of(step, report).into_iter().enumerate() {
            if shown.len() < args.groups {
                shown.push(table::group(step, number, &group, several_steps));
            }
            rows.extend(group);
        }
    }
    if let Some(path) = &args.output {
        write_rows(path, &rows)?;
    }
    for text in &shown {
        ui::print(&format!("{text}\n"));
    }
    if args.explain {
        ui::print(&format!("{}\n", table::legend(&rows)));
    }
    ui::print(&summary(&dump, &args.preset, &rows, shown.len()));
    let notes = settings::notes(&args.preset, &pipeline, &config.encoder);
    for note in dump.notes.iter().cloned().chain(notes) {
        ui::print(&format!("note: {note}"));
    }
    if let Some(path) = &args.output {
        ui::print(&format!("written to {}", path.display()));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn require(dump: &Dump, preset: &str, method: &str, field: TurnField) -> anyhow::Result<()> {
    dump.require(method, field).map_err(|error| anyhow::anyhow!("{error}. {}", hint(preset, field)))
}

fn hint(preset: &str, field: TurnField) -> String {
    match field {
        TurnField::Credit => format!(
            "`{preset}` takes the credit of every turn from a judge or a trained decomposer; name one with --turnrd \
             and --policy, give each turn its `credit`, or use has-progressive"
        ),
        TurnField::Values => {
            format!("`{preset}` needs a critic; give each turn its `values`, or use a group-relative method")
        }
        _ => format!("So `{preset}` cannot be computed from this file"),
    }
}

fn rows_of(step: &DumpBatch, report: CreditReport) -> Vec<Vec<Row>> {
    let mut explanations = Vec::from(report.explanations).into_iter();
    let mut groups = Vec::with_capacity(step.batch.groups.len());
    for (number, group) in step.batch.groups.iter().enumerate() {
        let mut explanations = explanations.next().into_iter().flatten();
        let rows = group.trajectories.iter().enumerate().map(|(index, trajectory)| {
            let origin = &step.origins[number][index];
            let task = &trajectory.task;
            Row {
                line: origin.line,
                step: step.step,
                group: origin.group.clone(),
                sample: trajectory.sample,
                task: if task.goal.is_empty() { task.id.clone() } else { task.goal.clone() },
                outcome: trajectory.outcome_return(),
                success: origin.success,
                advantages: report.advantages[number][index].clone(),
                outliers: report.outliers.as_ref().map(|outliers| outliers.mask[number][index].clone()),
                explanation: explanations.next(),
            }
        });
        groups.push(rows.collect());
    }
    groups
}

fn summary(dump: &Dump, preset: &str, rows: &[Row], shown: usize) -> String {
    let groups: usize = dump.batches.iter().map(|step| step.batch.groups.len()).sum();
    let turns: usize = rows.iter().map(|row| row.advantages.len()).sum();
    let flat = rows.iter().filter(|row| row.advantages.iter().all(|&advantage| advantage == 0.0)).count();
    let mut text = format!(
        "{preset} on {} ({}): {} in {}, {turns} turns",
        dump.path.file_name().unwrap_or_default().display(),
        dump.format,
        table::counted(rows.len(), "trajectory", "trajectories"),
        table::counted(groups, "group", "groups"),
    );
    if dump.batches.len() > 1 {
        text.push_str(&format!(", {} steps", dump.batches.len()));
    }
    if flat > 0 {
        text.push_str(&format!("; {flat} with no advantage at all"));
    }
    if shown < groups {
        text.push_str(&format!("\n{shown} of {groups} groups shown; --groups N shows more"));
    }
    text
}
