use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use turnwise_decompose::turnrd::{
    Credits, Fit, Replay, ReplayRecord, TrainProgress, TrainReport, TurnRd, TurnRdConfig,
};

use super::analyze::{FilmMeasures, Measures, measure};
use super::credit::turnrd_settings_of;
use super::output::is_same_file;
use crate::ui;

const REPORT: &str = "training.json";
const ACTION_WIDTH: usize = 48;

#[derive(Args)]
pub(crate) struct TurnrdArgs {
    #[command(subcommand)]
    command: TurnrdCommand,
}

#[derive(Subcommand)]
enum TurnrdCommand {
    /// Train a new network on a replay file.
    Train(TrainArgs),
    /// Show a network or a replay: size, fit on held-out records, FiLM, and one trajectory's
    /// credits.
    Inspect(InspectArgs),
}

#[derive(Args)]
struct TrainArgs {
    /// A replay file, or a run that contains a replay file.
    replay: PathBuf,
    /// Output folder for the trained network.
    #[arg(short, long, alias = "out")]
    output: PathBuf,
    /// TOML file with `decomposer.network` settings; missing keys keep their defaults.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Train without FiLM, so that credits do not depend on the goal (as in presets without
    /// `-film`).
    #[arg(long)]
    no_film: bool,
    /// Number of epochs over the replay.
    #[arg(long)]
    epochs: Option<usize>,
    /// Hold out one in every N records to measure the fit; 0 trains on all records.
    #[arg(long, default_value_t = 10)]
    hold_out: u64,
    /// Seed for initial weights, data order and dropout.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Args)]
struct InspectArgs {
    /// A network folder, a replay file, or a run (its newest network and its replay).
    path: PathBuf,
    /// Replay to evaluate the network on [default: the one it was trained on].
    #[arg(long)]
    replay: Option<PathBuf>,
    /// Index of the record shown in the credit table [default: the held-out record with the highest
    /// return].
    #[arg(long)]
    record: Option<usize>,
}

#[derive(Serialize, Deserialize)]
struct Report {
    replay: PathBuf,
    hold_out: u64,
    seed: u64,
    report: TrainReport,
    trained: Fit,
    held_out: Option<Fit>,
}

pub(crate) fn run(args: TurnrdArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        TurnrdCommand::Train(args) => train(&args)?,
        TurnrdCommand::Inspect(args) => inspect(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn replay_of(path: &Path) -> PathBuf {
    let of_run = path.join("turnrd/replay.bin");
    if of_run.is_file() { of_run } else { path.to_owned() }
}

fn network_of(path: &Path) -> anyhow::Result<PathBuf> {
    let folder = path.join("turnrd");
    if !folder.is_dir() {
        return Ok(path.to_owned());
    }
    let mut rounds: Vec<PathBuf> = std::fs::read_dir(&folder)
        .with_context(|| folder.display().to_string())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join("turnrd.safetensors").is_file())
        .collect();
    rounds.sort();
    rounds.pop().with_context(|| {
        format!("{}: no round of this run has ended yet, so that no network is trained", path.display())
    })
}

fn train(args: &TrainArgs) -> anyhow::Result<()> {
    if args.output.is_file() || args.output.join("turnrd.safetensors").exists() {
        bail!("--output {}: is there already; name a new folder", args.output.display());
    }
    let source = replay_of(&args.replay);
    let mut config: TurnRdConfig = match &args.config {
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            toml::from_str(&text).with_context(|| path.display().to_string())?
        }
        None => TurnRdConfig::default(),
    };
    config.film &= !args.no_film;
    config.epochs = args.epochs.unwrap_or(config.epochs);
    let mut replay = Replay::open(&source)?;
    ui::print(&describe(&source, &mut replay)?);
    let Some(&newest) = replay.rounds().keys().next_back() else {
        bail!("{} holds no record to train on", source.display());
    };
    let width = replay.read(0)?.input_dim();
    let half_life = config.half_life;
    let mut model = TurnRd::new(config, width, args.seed)?;
    let (trained, held_out) = replay.split(args.hold_out);
    if trained.is_empty() {
        bail!("every record is held out; use --hold-out 0");
    }
    let (report, trained) = {
        let mut view = replay.view(trained, newest, half_life)?;
        let tenth = |progress: &TrainProgress| progress.done * 10 / progress.total;
        let (terminal, mut said) = (ui::Ui::new(), 0);
        let report = model.train(&mut view, u64::from(newest), args.seed, &mut |progress| {
            if tenth(&progress) > said {
                said = tenth(&progress);
                terminal.say(&format!(
                    "minibatch {}/{}  loss {:.4}",
                    progress.done, progress.total, progress.losses.total
                ));
            }
        })?;
        (report, model.fit(&mut view)?)
    };
    let fit = model.fit(&mut replay.view(held_out, newest, half_life)?)?;
    let held_out = (fit.samples > 0).then_some(fit);
    model.save(&args.output)?;
    let replay = std::fs::canonicalize(&source).unwrap_or(source);
    let report = Report { replay, hold_out: args.hold_out, seed: args.seed, report, trained, held_out };
    let path = args.output.join(REPORT);
    std::fs::write(&path, serde_json::to_string_pretty(&report)?)
        .with_context(|| path.display().to_string())?;
    ui::print("\nepoch   total  return    rank   prior   value  gradient");
    for (epoch, of) in report.report.epochs.iter().enumerate() {
        let losses = &of.losses;
        ui::print(&format!(
            "{:5} {:7.4} {:7.4} {:7.4} {:7.4} {:7.4} {:9.3}",
            epoch + 1,
            losses.total,
            losses.prediction,
            losses.rank,
            losses.prior,
            losses.value,
            of.grad_norm
        ));
    }
    ui::print(&format!("\ntrained on  {}", fit_line(&report.trained)));
    if let Some(fit) = &report.held_out {
        ui::print(&format!("held out    {}", fit_line(fit)));
    }
    ui::print(&format!("checkpoint  {}", args.output.display()));
    Ok(())
}

struct Origin {
    replay: PathBuf,
    /// The value of `--hold-out` that the network was trained with, if known.
    hold_out: Option<u64>,
}

impl Origin {
    fn of(network: &Path) -> anyhow::Result<Option<Self>> {
        let path = network.join(REPORT);
        if path.is_file() {
            let failed = || path.display().to_string();
            let bytes = std::fs::read(&path).with_context(failed)?;
            let report: Report = serde_json::from_slice(&bytes).with_context(failed)?;
            return Ok(Some(Self { replay: report.replay, hold_out: Some(report.hold_out) }));
        }
        let replay = network.with_file_name("replay.bin");
        if !replay.is_file() {
            return Ok(None);
        }
        let hold_out = turnrd_settings_of(network)?.map(|settings| settings.hold_out);
        Ok(Some(Self { replay, hold_out }))
    }
}

fn inspect(args: &InspectArgs) -> anyhow::Result<()> {
    if args.path.is_file() {
        if args.record.is_some() || args.replay.is_some() {
            bail!("{}: is a replay; --record and --replay are for a trained network", args.path.display());
        }
        let mut replay = Replay::open(&args.path)?;
        ui::print(&describe(&args.path, &mut replay)?);
        return Ok(());
    }
    let folder = network_of(&args.path)?;
    let model = TurnRd::load(&folder)?;
    ui::print(&format!("{}\n{}", folder.display(), toml::to_string(model.config())?));
    ui::print(&format!(
        "{} parameters, vectors of width {}, {} steps of training",
        model.parameters(),
        model.input_dim(),
        model.steps()
    ));
    let origin = Origin::of(&folder)?;
    let own = origin.as_ref().map(|origin| origin.replay.clone());
    let Some(path) = args.replay.as_deref().map(replay_of).or(own) else {
        ui::print("no replay is known for it; give one with --replay to see fit, FiLM and credits");
        return Ok(());
    };
    let mut replay = Replay::open(&path)?;
    ui::print(&format!("\n{}", describe(&path, &mut replay)?));
    let Some(&newest) = replay.rounds().keys().next_back() else { return Ok(()) };
    let hold_out =
        origin.filter(|origin| is_same_file(&origin.replay, &path)).and_then(|origin| origin.hold_out);
    let (all, held_out) = replay.split(hold_out.unwrap_or(0));
    let (name, chosen) = if held_out.is_empty() { ("all records", all) } else { ("held out", held_out) };
    let Measures { fit, separation, film } = measure(&model, &mut replay, &chosen, newest, 0)?;
    ui::print(&format!("{name}: {}", fit_line(&fit)));
    ui::print(&format!("largest |sum of credits - return|: {:.1e}", fit.sum_drift));
    if let (Some(auc), Some(within)) = (separation.auc, separation.auc_within) {
        ui::print(&format!(
            "credits of the {} turns that achieve something against those of {} others: area under the ROC curve \
             {auc:.3}, inside trajectories {within:.3} (0.5 is chance)",
            separation.achieving_turns, separation.other_turns
        ));
    }
    if let Some(FilmMeasures { norms, zeroed, shuffled }) = film {
        ui::print(&format!("FiLM norms: gamma {:.4}, beta {:.4}", norms.gamma, norms.beta));
        ui::print(&format!("FiLM zeroed: values change by {:.1} %", 100.0 * zeroed.relative_change));
        let growth =
            shuffled.relative_growth().map_or("-".into(), |growth| format!("{:+.2} %", 100.0 * growth));
        ui::print(&format!(
            "goals shuffled: error of {} {growth}, {:.1} % of trajectories worse",
            if shuffled.of_values { "values" } else { "returns" },
            100.0 * shuffled.worse
        ));
    }
    let index = match args.record {
        Some(index) => index,
        None => best(&mut replay, &chosen)?,
    };
    let record = replay.read(index)?;
    let credits = model.credits(&record.turns, &record.goal, record.ret)?;
    ui::print(&format!("\n{}", table(index, &record, &credits)));
    Ok(())
}

fn best(replay: &mut Replay, indices: &[usize]) -> anyhow::Result<usize> {
    let mut best: Option<(f64, usize)> = None;
    for &index in indices {
        let ret = replay.read(index)?.ret;
        if best.is_none_or(|(highest, _)| ret > highest) {
            best = Some((ret, index));
        }
    }
    Ok(best.map_or(0, |(_, index)| index))
}

fn fit_line(fit: &Fit) -> String {
    let r2 = fit.r2.map_or("R^2 undefined (all returns are equal)".into(), |r2| format!("R^2 {r2:.3}"));
    format!("{} trajectories, {r2}, mean squared error {:.4}", fit.samples, fit.mse)
}

fn describe(path: &Path, replay: &mut Replay) -> anyhow::Result<String> {
    #[derive(Default)]
    struct Round {
        records: usize,
        turns: usize,
        returns: f64,
        signals: usize,
    }

    let mut rounds: BTreeMap<u32, Round> = BTreeMap::new();
    let mut width = 0;
    for index in 0..replay.len() {
        let record = replay.read(index)?;
        width = record.input_dim();
        let round = rounds.entry(record.round).or_default();
        round.records += 1;
        round.turns += record.turn_count();
        round.returns += record.ret;
        round.signals += usize::from(record.progress.iter().any(Option::is_some));
    }
    let mut text = format!("{}: {} records, vectors of width {width}", path.display(), replay.len());
    let health = replay.health();
    if health.torn_bytes > 0 {
        write!(text, "\n1 unfinished record at the end ({} bytes) is left out", health.torn_bytes)?;
    }
    for range in &health.corrupt {
        write!(text, "\nbytes {} to {} are damaged; their record is lost", range.start, range.end)?;
    }
    text += "\nround  records  turns/record  mean return  with progress";
    for (round, of) in rounds {
        let count = of.records as f64;
        let (turns, returns) = (of.turns as f64 / count, of.returns / count);
        write!(text, "\n{round:5}  {:7}  {turns:12.1}  {returns:11.3}  {:13}", of.records, of.signals)?;
    }
    Ok(text)
}

/// Tabulates credits. A star marks the turn with the highest credit, or with the lowest if the
/// return is not positive.
fn table(index: usize, record: &ReplayRecord, credits: &Credits) -> String {
    let sign = if record.ret > 0.0 { 1.0 } else { -1.0 };
    let by_credit =
        |a: &usize, b: &usize| (sign * credits.credits[*a]).total_cmp(&(sign * credits.credits[*b]));
    let decisive = (0..credits.credits.len()).rev().max_by(by_credit);
    let mut text = format!(
        "record {index}, round {}: return {:.3}, estimated {:.3}",
        record.round, record.ret, credits.estimate
    );
    if !record.goal_text.is_empty() {
        text += &format!("\ngoal: {}", record.goal_text);
    }
    text += "\nturn  weight   value   credit    action";
    for turn in 0..credits.credits.len() {
        let star = if decisive == Some(turn) { '★' } else { ' ' };
        let action: String =
            record.actions.get(turn).map_or("", String::as_str).chars().take(ACTION_WIDTH).collect();
        let (weight, value, credit) = (credits.weights[turn], credits.values[turn], credits.credits[turn]);
        text += &format!("\n{:4}  {weight:6.3}  {value:+6.3}  {credit:+7.3} {star}  {action}", turn + 1);
    }
    text
}
