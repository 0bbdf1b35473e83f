use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use turnwise_eval::Agent;
use turnwise_eval::benchmark::gradient::Products;
use turnwise_eval::benchmark::{
    GradientDifference, GradientScore, Gradients, ScoreSettings, ScoredTurns, read_truth,
};
use turnwise_eval::statistics::Bootstrap;
use turnwise_model::NativeLearner;
use turnwise_policy::Policy;
use turnwise_train::{Event, Observer as _, learner_config};

use super::score::{Chosen, of_method};
use super::tables::{number, signed};
use crate::commands::eval::config_of;
use crate::commands::table::Table;
use crate::ui::{self, Ui};

#[derive(Args)]
pub(crate) struct GradientArgs {
    /// A file written by `turnwise benchmark credit`.
    truth: PathBuf,
    /// The policy that sampled the trajectories: a run directory (newest checkpoint), a checkpoint,
    /// or a model folder.
    policy: PathBuf,
    /// Config files and overrides, e.g. eval.tasks=64 [default: the run's or checkpoint's own
    /// config].
    #[arg(value_name = "CONFIG|KEY=VALUE")]
    sources: Vec<String>,
    #[command(flatten)]
    chosen: Chosen,
    /// Print the tables as Markdown.
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
    let mut models = args.chosen.models()?;
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
        match of_method(&args.chosen, &turns, credit, models.as_mut()) {
            Ok(values) => found.push((name.clone(), gradients.products(&values)?)),
            Err(error) if args.chosen.all => notes.push(format!("{name} is left out: {error:#}")),
            Err(error) => return Err(error.context(format!("--preset {name}"))),
        }
        ui.count("gradients", index + 2, total);
    }
    found.push(("a-star".to_owned(), gradients.products(&truth)?));
    ui.finish();
    let differences = args.chosen.baseline_of(&found).and_then(|(baseline, base)| {
        let others = found.iter().filter(|(name, _)| name != baseline);
        let of = |(name, method): &(String, Products)| {
            method.difference(name, (baseline, base), per_step, &settings)
        };
        differences(&others.map(of).collect::<Vec<GradientDifference>>())
    });
    let scores: Vec<GradientScore> =
        found.iter().map(|(name, products)| products.score(name, per_step, &settings)).collect();
    let title = format!(
        "Gradient of the advantages against that of A*: {} tasks, {parameters} parameters; ascent for steps of {per_step} tasks",
        turns.tasks
    );
    for table in std::iter::once(table(title, &scores)).chain(differences) {
        ui::print(&if args.markdown { table.markdown() } else { table.text() });
    }
    if !args.markdown {
        ui::print(LEGEND);
    }
    for note in &notes {
        ui::print(&format!("note: {note}"));
    }
    Ok(ExitCode::SUCCESS)
}

const LEGEND: &str = "\
cosine: of the gradients on the same turns; corrected: without the noise of the truth; signal: share of a task's gradient that the
tasks have in common; ascent: expected cosine of one step's mean gradient with the true gradient of the distribution of tasks,
empty if the tasks are too few to know that.
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

fn differences(differences: &[GradientDifference]) -> Option<Table> {
    let baseline = &differences.first()?.baseline;
    let header = [format!("less {baseline}"), "cosine".into(), "corrected".into(), "ascent".into()];
    let row = |difference: &GradientDifference| {
        vec![
            difference.name.clone(),
            signed(difference.cosine.as_ref(), 2),
            signed(difference.corrected.as_ref(), 2),
            signed(difference.ascent.as_ref(), 2),
        ]
    };
    Some(Table {
        title: format!("Differences to {baseline} on the same drawn tasks"),
        header: header.to_vec(),
        rows: differences.iter().map(row).collect(),
    })
}
