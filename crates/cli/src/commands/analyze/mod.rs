//! `turnwise analyze`: what the papers report of a policy or a run besides its success.

mod attribution;
mod played;
mod surprisal;
mod turnrd;

use std::process::ExitCode;

use clap::{Args, Subcommand};

pub(super) use turnrd::{FilmMeasures, Measures, measure};

#[derive(Args)]
pub(crate) struct AnalyzeArgs {
    #[command(subcommand)]
    command: AnalyzeCommand,
}

#[derive(Subcommand)]
enum AnalyzeCommand {
    /// TurnRD over the rounds of a run: does it predict returns, find the turns that count, use the goal?
    ///
    /// Every network is asked about the round that it shaped, whose trajectories it had not seen.
    Turnrd(turnrd::TurnrdArgs),
    /// AEM's coefficient against the relative surprisal of responses (figure 2 of its paper).
    ///
    /// Plays groups, draws turns of them, samples other responses to their prompts, and says whether the coefficient is above 1 where
    /// the response is less surprising than those.
    Surprisal(surprisal::SurprisalArgs),
    /// STAPO's outlier turns against the others: advantage, and dependence on goal and history (figure 2 of its paper).
    ///
    /// Plays groups, and asks the policy again about every response with goal, history or both hidden from the prompt.
    Attribution(attribution::AttributionArgs),
}

pub(crate) fn run(args: AnalyzeArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        AnalyzeCommand::Turnrd(args) => turnrd::run(&args),
        AnalyzeCommand::Surprisal(args) => surprisal::run(args),
        AnalyzeCommand::Attribution(args) => attribution::run(args),
    }
}
