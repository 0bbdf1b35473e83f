//! `turnwise benchmark score`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use serde::Serialize;
use turnwise_credit::{CreditConfig, CreditError, Pipeline};
use turnwise_eval::benchmark::{
    Against, MethodScore, ScoreSettings, ScoredTurns, TruthSource, TruthSummary, advantages, read_truth,
    score, summarise,
};
use turnwise_eval::statistics::Bootstrap;

use super::tables;
use crate::commands::credit::settings;
use crate::registries::methods;
use crate::ui;

#[derive(Args)]
pub(crate) struct ScoreArgs {
    /// A file of `turnwise benchmark credit`.
    truth: PathBuf,
    #[command(flatten)]
    chosen: Chosen,
    /// Form of the output.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Show errors by place of the turn and by outcome, too.
    #[arg(long)]
    parts: bool,
}

/// The methods that are scored, and the intervals.
#[derive(Args)]
pub(super) struct Chosen {
    /// A method, by preset name; may be given again.
    #[arg(long, value_name = "NAME", required_unless_present = "all")]
    preset: Vec<String>,
    /// Score every preset that needs no model, one of those whose credit is the same.
    #[arg(long, conflicts_with = "preset")]
    pub(super) all: bool,
    /// A switch of the named methods, such as estimator.omega=0.5; may be given again.
    #[arg(long, value_name = "KEY=VALUE", requires = "preset")]
    set: Vec<String>,
    /// Model folder of a sentence encoder for methods that match states by embedding, in place of hashed character n-grams.
    #[arg(long, value_name = "DIR")]
    encoder: Option<PathBuf>,
    /// Seed of the methods that draw.
    #[arg(long, default_value_t = 0)]
    method_seed: u64,
    /// Resamples of the intervals.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub(super) resamples: u32,
    /// Seed of the resamples.
    #[arg(long, default_value_t = 0)]
    pub(super) seed: u64,
}

impl Chosen {
    /// The methods by name.
    pub(super) fn methods(&self) -> anyhow::Result<Vec<(String, CreditConfig)>> {
        if self.all { all_methods() } else { named_methods(self) }
    }
}

/// Forms of the output.
#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables for the terminal.
    #[default]
    Text,
    /// Tables for Markdown.
    Markdown,
    /// One number with its interval a line, errors by part included.
    Csv,
    /// Everything.
    Json,
}

/// Continuations from each state of the ladder of estimates.
const LADDER: [usize; 3] = [1, 4, 16];

/// Everything that was found.
#[derive(Serialize)]
struct Scores {
    source: TruthSource,
    truth: TruthSummary,
    methods: Vec<MethodScore>,
    notes: Vec<String>,
}

pub(super) fn run(args: &ScoreArgs) -> anyhow::Result<ExitCode> {
    let methods = args.chosen.methods()?;
    let lines = read_truth(&args.truth)?;
    let Some(source) = lines.first().map(|line| line.benchmark.clone()) else {
        bail!("{}: has no trajectory", args.truth.display());
    };
    let turns = ScoredTurns::new(lines);
    if turns.turns.is_empty() {
        bail!("{}: no turn has a truth; measure with more --continuations", args.truth.display());
    }
    let settings = ScoreSettings {
        bootstrap: Bootstrap { resamples: args.chosen.resamples as usize, seed: args.chosen.seed },
        ..ScoreSettings::default()
    };
    let (mut found, mut notes) = (Vec::new(), Vec::new());
    for (name, credit) in &methods {
        match of_method(&args.chosen, &turns, credit) {
            Ok(values) => found.push(score(name, &turns, &values, Against::All, &settings)),
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
    show(args, &Scores { source, truth, methods: found, notes })?;
    Ok(ExitCode::SUCCESS)
}

/// Named presets with their switches.
fn named_methods(args: &Chosen) -> anyhow::Result<Vec<(String, CreditConfig)>> {
    let of = |name: &String| {
        let label = std::iter::once(name.as_str()).chain(args.set.iter().map(String::as_str));
        let label = label.collect::<Vec<_>>().join(" ");
        Ok((label, settings::config(name, false, &args.set)?))
    };
    args.preset.iter().map(of).collect()
}

/// Every preset, those of the same credit once: the name of the first, and the others behind it.
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

/// The advantages of a method on the turns.
pub(super) fn of_method(
    args: &Chosen,
    turns: &ScoredTurns,
    credit: &CreditConfig,
) -> anyhow::Result<Vec<f64>> {
    let mut credit = credit.clone();
    if let Some(folder) = &args.encoder {
        credit.encoder.clone_from(folder);
    }
    let pipeline = Pipeline::with_registry(&credit, &methods().credit)?;
    let needs = pipeline.needs();
    let models = [
        (needs.state_values.is_some(), "continuations of its own"),
        (needs.values, "a critic"),
        (needs.credits, "a decomposer"),
        (needs.scores || needs.hidden_states.is_some(), "the policy"),
    ];
    let model = models.into_iter().find_map(|(needed, model)| needed.then_some(model));
    if let Some(model) = model {
        bail!("it needs {model}, and a file of trajectories has none");
    }
    let embedder = turnwise_train::embedder(&credit)?;
    match advantages(turns, &pipeline, &*embedder, args.method_seed) {
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
        [tables::scores(title(scores), &scores.methods)].into_iter().chain(errors)
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
        Format::Csv => ui::print(tables::csv(&scores.truth, &scores.methods).trim_end()),
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
