//! `turnwise index`: collections of passages, made searchable, asked and served.

mod build;
mod query;
mod serve;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Build, ask and serve indexes of passages.
#[derive(Args)]
pub(crate) struct IndexArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make an index folder of passages in JSON lines (`{"id", "contents"}`), as wiki-18 has them.
    Build(build::BuildArgs),
    /// Ask an index one query, or all of a file.
    Query(query::QueryArgs),
    /// Serve an index to other programs: `POST /retrieve`, as Search-R1's server answers it.
    Serve(serve::ServeArgs),
}

/// Runs the command.
pub(crate) fn run(args: IndexArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Build(args) => build::run(&args),
        Command::Query(args) => query::run(&args),
        Command::Serve(args) => serve::run(&args),
    }
}
