use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use turnwise_credit::aem::AemConfig;
use turnwise_eval::analysis::{SurprisalSettings, SurprisalStudy, surprisal};

use super::played::{Played, PlayedArgs};
use crate::commands::output::{check_ending, check_output, write_text};
use crate::plot::document;
use crate::plot::scatter::scatter;
use crate::ui;

#[derive(Args)]
pub(crate) struct SurprisalArgs {
    #[command(flatten)]
    played: PlayedArgs,
    /// Number of turns to analyze.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..))]
    states: u32,
    /// Number of responses to sample for each turn.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..))]
    draws: u32,
    /// AEM's `lambda`.
    #[arg(long, default_value_t = 1.0)]
    lambda: f64,
    /// AEM's `min_spread`: groups whose entropies span fewer nats than this are not scaled.
    #[arg(long, default_value_t = 0.1)]
    min_spread: f64,
    /// Plot AEM's coefficient against relative surprisal, as SVG.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub(super) fn run(args: SurprisalArgs) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.svg {
        check_ending("--svg", path, "svg")?;
        check_output("--svg", path)?;
    }
    let states = args.states as usize;
    let study = SurprisalSettings {
        states,
        draws: args.draws as usize,
        aem: AemConfig { lambda: args.lambda, min_spread: args.min_spread, ..AemConfig::default() },
    };
    let mut played = Played::new(args.played)?;
    let settings = Played::settings(&played.config, &played.policy, &played.runner, played.stop);
    let ui = &mut played.ui;
    let found = surprisal(&settings, &played.batch, &study, &mut |done| ui.count("surprisal", done, states))?;
    ui.finish();
    ui::print(&text(&found, study.draws, &played.summary()));
    played.write(&found)?;
    if let Some(path) = &args.svg {
        write_text("--svg", path, &plot(&found, &played.summary()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn plot(study: &SurprisalStudy, played: &str) -> String {
    let points: Vec<(f64, f64)> =
        study.points.iter().map(|point| (point.relative(), point.alpha - 1.0)).collect();
    let piece = scatter(&points, "relative surprisal H(s) - S(a|s), nats", "alpha - 1");
    document("AEM's coefficient over the relative surprisal", &[played.to_owned()], &[piece])
}

fn text(study: &SurprisalStudy, draws: usize, played: &str) -> String {
    let SurprisalStudy { points, scaled_turns, turns, pearson, pearson_of_state, certain, same_sign, .. } =
        study;
    let with_sign = points.len() - certain;
    let percent = |part: usize, all: usize| 100.0 * part as f64 / all.max(1) as f64;
    let number = |r: &Option<f64>| r.map_or_else(|| "-".into(), |r| format!("{r:.2}"));
    let (correlation, of_state) = (number(pearson), number(pearson_of_state));
    format!(
        "AEM's alpha - 1 against the relative surprisal H(s) - S(a|s), the mean estimated from {draws} responses to the same prompt\n\
         {played}\n\n  \
         turns that AEM scales  {scaled_turns} of {turns} ({:.1} %)\n  \
         of these looked at     {}\n  \
         Pearson's r            {correlation} with H(s) - S(a|s), {of_state} with H(s) alone\n  \
         same sign              {same_sign} of {with_sign} ({:.1} %); at {certain} every response drawn was the same\n  \
         variance of S(a|s)     {:.3} between states, {:.3} within a state{}",
        percent(*scaled_turns, *turns),
        points.len(),
        percent(*same_sign, with_sign),
        study.variance_between,
        study.variance_within,
        study.share_within().map_or_else(String::new, |share| format!(" ({:.1} %)", 100.0 * share)),
    )
}
