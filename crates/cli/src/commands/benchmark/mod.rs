//! `turnwise benchmark`: estimates each turn's true advantage and scores credit methods against it.

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
    /// Measure the true advantage of each turn in a policy's trajectories, and write both to a
    /// file.
    ///
    /// Samples trajectories, then continuations from the state before each turn. A state's V is the
    /// mean return of its continuations. A turn's Q is its reward plus V of the next state. The
    /// true advantage is Q - V. Saves each finished task: rerun the command to resume.
    Credit(credit::CreditArgs),
    /// Score credit methods against the true advantages written by `benchmark credit`. Needs no
    /// model.
    Score(score::ScoreArgs),
    /// Compare each credit method's policy gradient with the gradient from true advantages.
    Gradient(gradient::GradientArgs),
}

pub(crate) fn run(args: BenchmarkArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        BenchmarkCommand::Credit(args) => credit::run(args),
        BenchmarkCommand::Score(args) => score::run(&args),
        BenchmarkCommand::Gradient(args) => gradient::run(args),
    }
}
