//! `turnwise benchmark`: the true advantage of every turn, and credit methods scored against it.

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
    /// Measure the true advantage of every turn that a policy takes, and write it with the
    /// trajectories.
    ///
    /// Plays tasks, then samples continuations from the state before every turn. V of a state is
    /// the mean return of its continuations. Q of a turn is its reward plus V of the next state. The
    /// true advantage is Q - V. Finished tasks are kept: rerun the command to resume.
    Credit(credit::CreditArgs),
    /// Score credit methods against the true advantages that `benchmark credit` wrote. Needs no
    /// model.
    Score(score::ScoreArgs),
    /// Compare the policy gradient of credit methods with that of the true advantages.
    Gradient(gradient::GradientArgs),
}

pub(crate) fn run(args: BenchmarkArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        BenchmarkCommand::Credit(args) => credit::run(args),
        BenchmarkCommand::Score(args) => score::run(&args),
        BenchmarkCommand::Gradient(args) => gradient::run(args),
    }
}
