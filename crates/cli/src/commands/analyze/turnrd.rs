use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use serde::Serialize;
use turnwise_decompose::turnrd::{FilmNorms, FilmZeroed, Fit, GoalsShuffled, Replay, TurnRd};
use turnwise_eval::roc_auc;
use turnwise_train::{RunDirectory, round_folder};

use crate::commands::output::{check_ending, check_output, write_text};
use crate::ui;

#[derive(Args)]
pub(crate) struct TurnrdArgs {
    /// A run directory.
    run: PathBuf,
    /// Also write the results to FILE as JSON.
    #[arg(short, long, value_name = "FILE", alias = "out")]
    output: Option<PathBuf>,
    /// Seed for shuffling goals.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Measurements of one round's network, on the trajectories that it assigned credit to.
#[derive(Serialize)]
struct Round {
    round: u32,
    records: usize,
    /// `1 - mse / variance` of the returns; `None` if all returns are equal.
    r2: Option<f64>,
    mse: f64,
    /// Largest `|sum of credits - return|`.
    sum_drift: f64,
    /// Number of turns that raise the progress signal.
    achieving_turns: usize,
    other_turns: usize,
    /// ROC AUC: how well credits separate turns that raise the progress signal from others.
    auc: Option<f64>,
    auc_within: Option<f64>,
    /// ROC AUC with FiLM set to zero; `None` without FiLM.
    auc_film_zeroed: Option<f64>,
    auc_within_film_zeroed: Option<f64>,
    film_norms: Option<FilmNorms>,
    /// Relative change of the predicted values when FiLM is set to zero.
    film_zeroed_change: Option<f64>,
    /// Relative growth of the error when goals are shuffled across trajectories.
    goals_shuffled_growth: Option<f64>,
    goals_shuffled_worse: Option<f64>,
}

pub(super) fn run(args: &TurnrdArgs) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.output {
        check_ending("--output", path, "json")?;
        check_output("--output", path)?;
    }
    let run = RunDirectory::open(&args.run)?;
    let folder = run.path("turnrd");
    if !folder.is_dir() {
        bail!(
            "{}: has no TurnRD; train with a preset that has one, for example has-turnrd-film",
            args.run.display()
        );
    }
    let mut replay = Replay::open(&folder.join("replay.bin"))?;
    let mut rounds = Vec::new();
    for (round, _) in replay.rounds() {
        let network = round_folder(&folder, round);
        // Round 0's network is untrained and not saved.
        if network.is_dir() {
            rounds.push(analyse(&network, &mut replay, round, args.seed)?);
        }
    }
    if rounds.is_empty() {
        bail!("{}: no round came after a training of TurnRD yet; train longer", args.run.display());
    }
    ui::print(&table(&rounds));
    if let Some(path) = &args.output {
        let text = serde_json::to_string_pretty(&rounds)?;
        write_text("--output", path, &text)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn analyse(folder: &Path, replay: &mut Replay, round: u32, seed: u64) -> anyhow::Result<Round> {
    let network = TurnRd::load(folder)?;
    let indices: Vec<usize> = (0..replay.len()).filter(|&index| replay.round(index) == round).collect();
    let Measures { fit, separation, film } = measure(&network, replay, &indices, round, seed)?;
    let without_film = match film {
        Some(_) => Some(separate(&network.without_film(), replay, &indices)?),
        None => None,
    };
    Ok(Round {
        round,
        records: indices.len(),
        r2: fit.r2,
        mse: fit.mse,
        sum_drift: fit.sum_drift,
        achieving_turns: separation.achieving_turns,
        other_turns: separation.other_turns,
        auc: separation.auc,
        auc_within: separation.auc_within,
        auc_film_zeroed: without_film.as_ref().and_then(|found| found.auc),
        auc_within_film_zeroed: without_film.as_ref().and_then(|found| found.auc_within),
        film_zeroed_change: film.as_ref().map(|film| film.zeroed.relative_change),
        goals_shuffled_growth: film.as_ref().and_then(|film| film.shuffled.relative_growth()),
        goals_shuffled_worse: film.as_ref().map(|film| film.shuffled.worse),
        film_norms: film.map(|film| film.norms),
    })
}

pub(in crate::commands) struct Measures {
    pub(in crate::commands) fit: Fit,
    pub(in crate::commands) separation: Separation,
    /// FiLM measurements; `None` without a FiLM layer or records.
    pub(in crate::commands) film: Option<FilmMeasures>,
}

pub(in crate::commands) struct FilmMeasures {
    pub(in crate::commands) norms: FilmNorms,
    pub(in crate::commands) zeroed: FilmZeroed,
    pub(in crate::commands) shuffled: GoalsShuffled,
}

/// How well credits separate turns that raise the progress signal from turns that do not.
pub(in crate::commands) struct Separation {
    /// ROC AUC over all turns; `None` if all of them raise the signal or none does.
    pub(in crate::commands) auc: Option<f64>,
    /// Mean of the AUCs within trajectories that have both kinds of turns.
    pub(in crate::commands) auc_within: Option<f64>,
    pub(in crate::commands) achieving_turns: usize,
    pub(in crate::commands) other_turns: usize,
}

pub(in crate::commands) fn measure(
    network: &TurnRd,
    replay: &mut Replay,
    indices: &[usize],
    round: u32,
    seed: u64,
) -> anyhow::Result<Measures> {
    let separation = separate(network, replay, indices)?;
    let mut samples = replay.view(indices.to_vec(), round, network.config().half_life)?;
    let fit = network.fit(&mut samples)?;
    let film = match network.probe_film_norms(&mut samples)? {
        Some(norms) => Some(FilmMeasures {
            norms,
            zeroed: network.probe_film_zeroed(&mut samples)?,
            shuffled: network.probe_goals_shuffled(&mut samples, seed)?,
        }),
        None => None,
    };
    Ok(Measures { fit, separation, film })
}

fn separate(network: &TurnRd, replay: &mut Replay, indices: &[usize]) -> anyhow::Result<Separation> {
    let (mut all, mut within) = (Vec::new(), Vec::new());
    let mut counts = [0, 0];
    for &index in indices {
        let record = replay.read(index)?;
        let credits = network.credits(&record.turns, &record.goal, record.ret)?.credits;
        let mut before = 0.0;
        let mut own = Vec::new();
        for (credit, progress) in credits.iter().zip(&record.progress) {
            let Some(progress) = *progress else { continue };
            let achieves = progress > before;
            before = progress;
            counts[usize::from(achieves)] += 1;
            own.push((*credit, achieves));
        }
        within.extend(roc_auc(&own));
        all.extend(own);
    }
    let mean = (!within.is_empty()).then(|| within.iter().sum::<f64>() / within.len() as f64);
    Ok(Separation {
        auc: roc_auc(&all),
        auc_within: mean,
        achieving_turns: counts[1],
        other_turns: counts[0],
    })
}

fn table(rounds: &[Round]) -> String {
    let number = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "-".into(), |value| format!("{value:.digits$}"))
    };
    let mut text = String::from(
        "Each network on the trajectories of the round that it shaped, which it had not seen.\n\
         R2: of the returns. AUC: do turns that achieve a part of the goal get more credit than others\n\
         (0.5 is chance; in: inside trajectories; no F: with FiLM set to zero).\n\n\
         round records      R2    AUC     in   no F  in noF |gamma| |beta|  zeroed shuffled  drift\n",
    );
    for round in rounds {
        let percent =
            |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{:+.1}%", 100.0 * value));
        text.push_str(&format!(
            "{:>5} {:>7} {:>7} {:>6} {:>6} {:>6} {:>7} {:>7} {:>6} {:>7} {:>8} {:>6.0e}\n",
            round.round,
            round.records,
            number(round.r2, 3),
            number(round.auc, 3),
            number(round.auc_within, 3),
            number(round.auc_film_zeroed, 3),
            number(round.auc_within_film_zeroed, 3),
            number(round.film_norms.map(|norms| norms.gamma), 2),
            number(round.film_norms.map(|norms| norms.beta), 2),
            percent(round.film_zeroed_change),
            percent(round.goals_shuffled_growth),
            round.sum_drift,
        ));
    }
    text
}
