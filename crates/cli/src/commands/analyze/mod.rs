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
    /// Measure TurnRD over a run's rounds: does it predict returns, find decisive turns and use the
    /// goal?
    ///
    /// Each network is evaluated on trajectories that it assigned credit to but was not trained on.
    Turnrd(turnrd::TurnrdArgs),
    /// Compare AEM's coefficient with the relative surprisal of responses (figure 2 of its paper).
    ///
    /// Runs episodes, picks turns, and samples other responses to their prompts. Reports whether
    /// the coefficient exceeds 1 for responses that are less surprising than the samples.
    Surprisal(surprisal::SurprisalArgs),
    /// Compare STAPO's outlier turns with all other turns: their advantage, and how much they
    /// depend on goal and history (figure 2 of its paper).
    ///
    /// Runs episodes, then scores each response again without the goal, the history or both in the
    /// prompt.
    Attribution(attribution::AttributionArgs),
}

pub(crate) fn run(args: AnalyzeArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        AnalyzeCommand::Turnrd(args) => turnrd::run(&args),
        AnalyzeCommand::Surprisal(args) => surprisal::run(args),
        AnalyzeCommand::Attribution(args) => attribution::run(args),
    }
}
