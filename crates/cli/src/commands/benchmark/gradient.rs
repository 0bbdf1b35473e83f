//! `turnwise benchmark gradient`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use turnwise_eval::Agent;
use turnwise_eval::benchmark::{GradientScore, Gradients, ScoreSettings, ScoredTurns, read_truth};
use turnwise_eval::statistics::Bootstrap;
use turnwise_model::NativeLearner;
use turnwise_policy::Policy;
use turnwise_train::{Event, Observer as _, learner_config};

use super::score::{Chosen, of_method};
use super::tables::number;
use crate::commands::eval::config_of;
use crate::commands::table::Table;
use crate::ui::{self, Ui};

#[derive(Args)]
pub(crate) struct GradientArgs {
    /// A file of `turnwise benchmark credit`.
    truth: PathBuf,
    /// The policy that played its trajectories: a run directory (its newest checkpoint), a checkpoint, or a model folder.
    policy: PathBuf,
    /// Config files and overrides written key.sub=value. A run or checkpoint brings its own config.
    #[arg(value_name = "CONFIG|KEY=VALUE")]
    sources: Vec<String>,
    #[command(flatten)]
    chosen: Chosen,
    /// Print tables for Markdown.
    #[arg(long)]
    markdown: bool,
}

pub(super) fn run(args: GradientArgs) -> anyhow::Result<ExitCode> {
    let methods = args.chosen.methods()?;
    let mut ui = Ui::new();
    let policy = Policy::load_with(&args.policy, &mut |note| ui.event(Event::Note(note)))?;
    let config = config_of(&args.policy, &policy, args.sources, None, Agent::Plain)?;
    let lines = read_truth(&args.truth)?;
    if lines.iter().any(|line| line.truth.iter().any(Option::is_none)) {
        bail!(
            "{}: some turns have no truth, so that there is no whole gradient of it; measure with --method branching",
            args.truth.display()
        );
    }
    let turns = ScoredTurns::new(lines);
    let learner = NativeLearner::new(policy.weights, learner_config(&config, config.rollout.temperature))?;
    let settings = ScoreSettings {
        bootstrap: Bootstrap { resamples: args.chosen.resamples as usize, seed: args.chosen.seed },
        ..ScoreSettings::default()
    };
    let per_step = config.rollout.tasks_per_step;
    let total = methods.len() + 2;
    ui.count("gradients", 0, total);
    let mut gradients = Gradients::new(learner, &turns)?;
    let parameters = gradients.parameters();
    let (mut found, mut notes) = (Vec::new(), Vec::new());
    let truth: Vec<f64> = turns.turns.iter().map(|turn| turn.truth).collect();
    ui.count("gradients", 1, total);
    for (index, (name, credit)) in methods.iter().enumerate() {
        match of_method(&args.chosen, &turns, credit) {
            Ok(values) => found.push(gradients.score(name, &values, per_step, &settings)?),
            Err(error) if args.chosen.all => notes.push(format!("{name} is left out: {error:#}")),
            Err(error) => return Err(error.context(format!("--preset {name}"))),
        }
        ui.count("gradients", index + 2, total);
    }
    found.push(gradients.score("a-star", &truth, per_step, &settings)?);
    ui.finish();
    let title = format!(
        "Gradient of the advantages against that of A*: {} tasks, {parameters} parameters; ascent for steps of {per_step} tasks",
        turns.tasks
    );
    let table = table(title, &found);
    ui::print(&if args.markdown { table.markdown() } else { table.text() });
    if !args.markdown {
        ui::print(LEGEND);
    }
    for note in &notes {
        ui::print(&format!("note: {note}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Meaning of the columns, printed below the table.
const LEGEND: &str = "\
cosine: of the gradients on the same turns; corrected: without the noise of the truth; signal: share of a task's gradient that the
tasks have in common; ascent: expected cosine of one step's mean gradient with the true gradient of the distribution of tasks.
Intervals: 95 %, bootstrap over tasks.";

fn table(title: String, scores: &[GradientScore]) -> Table {
    let header = ["method", "cosine", "corrected", "signal", "ascent"].map(str::to_owned).to_vec();
    let row = |score: &GradientScore| {
        vec![
            score.name.clone(),
            number(score.cosine.as_ref(), 2),
            number(score.corrected.as_ref(), 2),
            number(score.signal.as_ref(), 3),
            number(score.ascent.as_ref(), 2),
        ]
    };
    Table { title, header, rows: scores.iter().map(row).collect() }
}
