mod credit;
mod gradient;
mod parts;
mod plot;
mod score;
mod tables;

use std::process::ExitCode;

use clap::{Args, Subcommand};

#[derive(Args)]
pub(crate) struct BenchmarkArgs {
    #[command(subcommand)]
    command: BenchmarkCommand,
}

#[derive(Subcommand)]
enum BenchmarkCommand {
    /// Measure each turn's true advantage in a policy's trajectories, and write the trajectories
    /// with their advantages to a file.
    ///
    /// Samples trajectories, then continuations from the state before each turn. A state's V is the
    /// mean return of its continuations; a turn's Q is its reward plus the next state's V; its true
    /// advantage is Q - V. Finished tasks are saved: rerun the command to resume.
    Credit(credit::CreditArgs),
    /// Score credit methods against the true advantages of `benchmark credit`, without a model.
    Score(score::ScoreArgs),
    /// Compare each credit method's policy gradient with the gradient that the true advantages
    /// give.
    Gradient(gradient::GradientArgs),
}

pub(crate) fn run(args: BenchmarkArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        BenchmarkCommand::Credit(args) => credit::run(args),
        BenchmarkCommand::Score(args) => score::run(&args),
        BenchmarkCommand::Gradient(args) => gradient::run(args),
    }
}
