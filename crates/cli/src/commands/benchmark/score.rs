use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use serde::Serialize;
use turnwise_credit::{CreditConfig, CreditError, ModelInputs, Pipeline};
use turnwise_eval::benchmark::{
    Against, Compared, Difference, MethodScore, ScoreSettings, ScoredTurns, TruthSource, TruthSummary,
    advantages, read_truth, score, summarise,
};
use turnwise_eval::statistics::Bootstrap;
use turnwise_policy::policy_folder;
use turnwise_policy::run_folder::enclosing_run;
use turnwise_train::{Event, Observer as _, RunModels, TrainError};

use super::{plot, tables};
use crate::commands::credit::settings;
use crate::commands::output::{check_ending, check_output, write_text};
use crate::registries::{methods, registries};
use crate::ui::{self, Ui};
use crate::worlds::load_of_run;

#[derive(Args)]
pub(crate) struct ScoreArgs {
    /// A file written by `turnwise benchmark credit`.
    truth: PathBuf,
    #[command(flatten)]
    chosen: Chosen,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Also show errors by turn position and by outcome.
    #[arg(long)]
    parts: bool,
    /// Write an SVG plot of how well each method's credit agrees with the true advantages within
    /// trajectories.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

#[derive(Args)]
pub(super) struct Chosen {
    /// Method preset to score; repeatable.
    #[arg(long, value_name = "NAME", required_unless_present = "all")]
    preset: Vec<String>,
    /// Score every preset that needs no model; presets that assign equal credit are scored once.
    #[arg(long, conflicts_with = "preset")]
    pub(super) all: bool,
    /// Setting for the methods in --preset, e.g. estimator.omega=0.5; repeatable.
    #[arg(long, value_name = "KEY=VALUE", requires = "preset")]
    set: Vec<String>,
    /// Method that all others are compared with, on the same resampled tasks [default: grpo if it
    /// is scored, else the first method].
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,
    /// Sentence encoder (model folder) for methods that match states by embedding [default: hashed
    /// character n-grams].
    #[arg(long, value_name = "DIR")]
    encoder: Option<PathBuf>,
    /// Run or checkpoint whose models compute critic values, TurnRD credits and policy scores for
    /// the methods that need them. Choose the run or checkpoint of the policy that sampled the
    /// trajectories.
    #[arg(long, value_name = "RUN")]
    models: Option<PathBuf>,
    /// Seed for methods that use randomness.
    #[arg(long, default_value_t = 0)]
    method_seed: u64,
    /// Number of bootstrap resamples for confidence intervals.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub(super) resamples: u32,
    /// Seed for resampling.
    #[arg(long, default_value_t = 0)]
    pub(super) seed: u64,
}

impl Chosen {
    pub(super) fn methods(&self) -> anyhow::Result<Vec<(String, CreditConfig)>> {
        let mut methods = if self.all { all_methods()? } else { named_methods(self)? };
        if let Some(baseline) = self.baseline.as_deref().filter(|baseline| !is_among(&methods, baseline)) {
            let credit = settings::config(baseline, false, &[]).context("--baseline")?;
            methods.push((baseline.to_owned(), credit));
        }
        Ok(methods)
    }

    pub(super) fn models(&self) -> anyhow::Result<Option<RunModels>> {
        let Some(path) = &self.models else { return Ok(None) };
        let load = || {
            let mut ui = Ui::new();
            let folder = policy_folder(path, &mut |note| ui.event(Event::Note(note)))?;
            let run = enclosing_run(&folder)
                .with_context(|| format!("{}: is neither a run nor a checkpoint", path.display()))?;
            anyhow::Ok(RunModels::load(&load_of_run(&run)?, &registries(), &folder)?)
        };
        load().map(Some).context("--models")
    }

    pub(super) fn baseline_of<'a, T>(&self, scored: &'a [(String, T)]) -> Option<&'a (String, T)> {
        if scored.len() < 2 {
            return None;
        }
        let name = self.baseline.as_deref().unwrap_or("grpo");
        scored.iter().find(|(scored, _)| scored == name).or(scored.first())
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables for the terminal.
    #[default]
    Text,
    /// Tables for Markdown.
    Markdown,
    /// One value with its interval per line, including errors by turn position and outcome.
    Csv,
    /// Everything.
    Json,
}

/// Numbers of continuations per state from which the `a-star` rows are computed.
const LADDER: [usize; 3] = [1, 4, 16];

#[derive(Serialize)]
struct Scores {
    source: TruthSource,
    truth: TruthSummary,
    methods: Vec<MethodScore>,
    differences: Vec<Difference>,
    notes: Vec<String>,
}

pub(super) fn run(args: &ScoreArgs) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.plot {
        check_ending("--plot", path, "svg")?;
        check_output("--plot", path)?;
    }
    let methods = args.chosen.methods()?;
    let lines = read_truth(&args.truth)?;
    let Some(source) = lines.first().map(|line| line.benchmark.clone()) else {
        bail!("{}: has no trajectory", args.truth.display());
    };
    let turns = ScoredTurns::new(lines);
    if turns.turns.is_empty() {
        bail!("{}: no turn has a truth; measure with more --continuations", args.truth.display());
    }
    let mut models = args.chosen.models()?;
    let settings = ScoreSettings {
        bootstrap: Bootstrap { resamples: args.chosen.resamples as usize, seed: args.chosen.seed },
        ..ScoreSettings::default()
    };
    let (mut found, mut compared, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for (name, credit) in &methods {
        match of_method(&args.chosen, &turns, credit, models.as_mut()) {
            Ok(values) => {
                found.push(score(name, &turns, &values, Against::All, &settings));
                compared.push((name.clone(), Compared::new(&turns, &values, Against::All, &settings)));
            }
            Err(error) if args.chosen.all => notes.push(format!("{name} is left out: {error:#}")),
            Err(error) => return Err(error.context(format!("--preset {name}"))),
        }
    }
    for k in LADDER {
        if let Some(values) = turns.ladder(k) {
            found.push(score(&format!("a-star K={k}"), &turns, &values, Against::SecondHalf, &settings));
        }
    }
    let truth = summarise(&turns, &settings);
    let scores =
        Scores { source, truth, methods: found, differences: differences(args, &compared, &settings), notes };
    show(args, &scores)?;
    if let Some(path) = &args.plot {
        let title = format!("{}, {} tasks", scores.source.policy, scores.truth.tasks);
        write_text("--plot", path, &plot::forest(&title, &scores.methods))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn differences(
    args: &ScoreArgs,
    compared: &[(String, Compared)],
    settings: &ScoreSettings,
) -> Vec<Difference> {
    let Some((baseline, base)) = args.chosen.baseline_of(compared) else { return Vec::new() };
    let others = compared.iter().filter(|(name, _)| name != baseline);
    others.map(|(name, method)| Difference::new((name, method), (baseline, base), settings)).collect()
}

fn is_among<T>(methods: &[(String, T)], name: &str) -> bool {
    methods.iter().any(|(method, _)| method == name)
}

fn named_methods(args: &Chosen) -> anyhow::Result<Vec<(String, CreditConfig)>> {
    let of = |name: &String| {
        let label = std::iter::once(name.as_str()).chain(args.set.iter().map(String::as_str));
        let label = label.collect::<Vec<_>>().join(" ");
        Ok((label, settings::config(name, false, &args.set)?))
    };
    args.preset.iter().map(of).collect()
}

fn all_methods() -> anyhow::Result<Vec<(String, CreditConfig)>> {
    let methods = methods();
    let mut found: Vec<(String, CreditConfig)> = Vec::new();
    for preset in methods.presets() {
        let credit = methods.credit(preset.name)?;
        if !found.iter().any(|(_, known)| *known == credit) {
            found.push((preset.name.to_owned(), credit));
        }
    }
    Ok(found)
}

pub(super) fn of_method(
    args: &Chosen,
    turns: &ScoredTurns,
    credit: &CreditConfig,
    models: Option<&mut RunModels>,
) -> anyhow::Result<Vec<f64>> {
    let mut credit = credit.clone();
    if let Some(folder) = &args.encoder {
        credit.encoder.clone_from(folder);
    }
    let pipeline = Pipeline::with_registry(&credit, &methods().credit)?;
    let needs = pipeline.required_inputs();
    if needs.state_values.is_some() {
        bail!("it needs its own continuations, and the truth itself is made of continuations; leave it out");
    }
    let parts = [
        (needs.values, "a critic"),
        (needs.credits, "a decomposer"),
        (needs.scores || needs.hidden_states.is_some(), "the policy"),
    ];
    let needed = parts.into_iter().find_map(|(needed, part)| needed.then_some(part));
    let model_inputs = match (needed, models) {
        (None, _) => Vec::new(),
        (Some(part), None) => {
            bail!(
                "it needs {part}, and a file of trajectories has none; name a run that has one with --models"
            )
        }
        (Some(_), Some(models)) => {
            let supplied = turns.batches.iter().map(|(_, batch)| pipeline.supply(batch, &mut *models));
            supplied.collect::<Result<Vec<ModelInputs>, TrainError>>()?
        }
    };
    let embedder = turnwise_train::embedder(&credit)?;
    match advantages(turns, &pipeline, &*embedder, &model_inputs, args.method_seed) {
        Ok(values) => Ok(values),
        Err(error @ CreditError::MissingField { .. }) => {
            Err(error).context("the world does not give what it needs")
        }
        Err(error) => Err(error.into()),
    }
}

fn show(args: &ScoreArgs, scores: &Scores) -> anyhow::Result<()> {
    let tables = || {
        let errors = if args.parts { tables::errors(&scores.methods) } else { None };
        let differences = tables::differences(&scores.differences);
        [tables::scores(title(scores), &scores.methods)].into_iter().chain(differences).chain(errors)
    };
    match args.format {
        Format::Text => {
            for table in tables() {
                ui::print(&table.text());
            }
            ui::print(tables::LEGEND);
            for note in &scores.notes {
                ui::print(&format!("note: {note}"));
            }
        }
        Format::Markdown => {
            for table in tables() {
                ui::print(&table.markdown());
            }
            for note in &scores.notes {
                ui::print(&format!("* {note}"));
            }
        }
        Format::Csv => ui::print(tables::csv(&scores.truth, &scores.methods, &scores.differences).trim_end()),
        Format::Json => ui::print(&serde_json::to_string_pretty(scores)?),
    }
    Ok(())
}

fn title(scores: &Scores) -> String {
    let Scores { source, truth, .. } = scores;
    format!(
        "{} on {} ({}, gamma {}): {} tasks, {} trajectories ({:.0} % solved), {} turns; A* has a standard deviation of {:.3} and a \
         mean error of {:.3}, reliability {}, within trajectories {}",
        source.policy,
        source.split,
        source.method,
        source.gamma,
        truth.tasks,
        truth.trajectories,
        100.0 * truth.solved,
        truth.turns,
        truth.deviation,
        truth.error,
        tables::number(truth.reliability.as_ref(), 2),
        tables::number(truth.within_reliability.as_ref(), 2),
    )
}
