//! The `turnwise` program as a library: trains multi-turn LLM agents with reinforcement learning.
//!
//! A crate that depends on this one can add custom environments, methods and losses to `turnwise`.
//! These additions are available in all commands, including the runs that a sweep starts.
//! `turnwise init method NAME` writes such a crate.
//!
//! ```no_run
//! use serde::{Deserialize, Serialize};
//! use turnwise_cli::core::PerTurn;
//! use turnwise_cli::credit::{CreditError, Explanation, CreditInputs, Refinement};
//!
//! /// `{ kind = "halve" }`.
//! #[derive(Clone, Default, Serialize, Deserialize)]
//! #[serde(default, deny_unknown_fields)]
//! struct Halve {}
//!
//! impl Refinement for Halve {
//!     fn name(&self) -> &'static str {
//!         "halve"
//!     }
//!
//!     fn refine(
//!         &self,
//!         _: &CreditInputs<'_>,
//!         advantages: &mut PerTurn<f64>,
//!         _: &mut Explanation,
//!     ) -> Result<(), CreditError> {
//!         advantages.values_mut().for_each(|advantage| *advantage *= 0.5);
//!         Ok(())
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     let mut registries = turnwise_cli::builtin();
//!     registries.methods.credit =
//!         registries.methods.credit.with_refinement("halve", |settings: Halve| Ok(settings));
//!     turnwise_cli::run(registries)
//! }
//! ```
//!
//! This crate sets mimalloc as the global allocator.

mod commands;
mod console;
pub mod library;
mod memory;
mod plot;
mod registries;
mod ui;
mod worlds;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
pub use turnwise_core as core;
pub use turnwise_credit as credit;
pub use turnwise_env as env;
pub use turnwise_objective as objective;
pub use turnwise_train as train;

pub use crate::registries::builtin;
pub use turnwise_train::Registries;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Train multi-turn LLM agents with reinforcement learning, and see which turns led to success.
#[derive(Parser)]
#[command(name = "turnwise", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train a small agent from scratch in a few minutes and show what it learned.
    Quickstart(commands::quickstart::QuickstartArgs),
    /// Train a policy: SFT warm start, then RL.
    Train(commands::train::TrainArgs),
    /// Train many runs: each config with each seed. Rerun the command to resume.
    Sweep(commands::sweep::SweepArgs),
    /// Compare runs: success with intervals over seeds, paired tests and learning curves.
    Compare(commands::compare::CompareArgs),
    /// Train a model on your own conversations, or only run a config's SFT warm start.
    Sft(commands::train::SftArgs),
    /// Evaluate a run, checkpoint or model on a fixed set of tasks, with 95 % intervals.
    Eval(commands::eval::EvalArgs),
    /// Run episodes with a policy and write the trajectories to a file.
    Rollout(commands::rollout::RolloutArgs),
    /// Export a policy as a model or adapter for transformers, PEFT and vLLM.
    Export(commands::export::ExportArgs),
    Push(commands::push::PushArgs),
    /// Chat with a model in the terminal.
    Chat(commands::chat::ChatArgs),
    /// Serve a policy over an OpenAI-compatible API: chat, completions, streaming, tools,
    /// log-probs.
    Serve(commands::serve::ServeArgs),
    /// Compute advantages for trajectories you already have.
    Credit(commands::credit::CreditArgs),
    /// View trajectories in a browser: each turn, its advantage, and how it was computed.
    View(commands::view::ViewArgs),
    /// Train and inspect TurnRD, the network that assigns credit in HAS.
    Turnrd(commands::turnrd::TurnrdArgs),
    /// Analyze the turns of a policy or run, as in the TurnRD, AEM and STAPO papers.
    Analyze(commands::analyze::AnalyzeArgs),
    /// Measure each turn's true advantage in a policy's trajectories, and score credit methods
    /// against it.
    Benchmark(commands::benchmark::BenchmarkArgs),
    /// Play an environment in the terminal.
    Play(commands::play::PlayArgs),
    /// List, generate and replay environments.
    Env(commands::env::EnvArgs),
    /// Build, query and serve passage indexes.
    Index(commands::index::IndexArgs),
    /// Create a starter project: an environment in Python, or a Rust crate with a credit method.
    Init(commands::init::InitArgs),
    /// Show or check a config.
    Config(commands::config::ConfigArgs),
}

/// Runs the program with this process's arguments.
pub fn run(registries: Registries) -> ExitCode {
    run_with(registries, &std::env::args_os().collect::<Vec<_>>(), Vec::new())
}

/// Runs the program with `arguments`, the first of which is the program's name.
///
/// `command` starts this program again for a sweep's runs, e.g. `python3 -m turnwise`. If `command`
/// is empty, the current executable is started.
pub fn run_with(registries: Registries, arguments: &[OsString], command: Vec<OsString>) -> ExitCode {
    registries::install(registries, command);
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return ui::usage(&error, arguments),
    };
    let result = match arguments.command {
        Command::Quickstart(args) => commands::quickstart::run(args),
        Command::Train(args) => commands::train::run(args),
        Command::Sweep(args) => commands::sweep::run(&args),
        Command::Compare(args) => commands::compare::run(args),
        Command::Sft(args) => commands::train::run_sft(args),
        Command::Eval(args) => commands::eval::run(args),
        Command::Rollout(args) => commands::rollout::run(args),
        Command::Export(args) => commands::export::run(&args),
        Command::Push(args) => commands::push::run(&args),
        Command::Chat(args) => commands::chat::run(args),
        Command::Serve(args) => commands::serve::run(&args),
        Command::Credit(args) => commands::credit::run(&args),
        Command::View(args) => commands::view::run(args),
        Command::Turnrd(args) => commands::turnrd::run(args),
        Command::Analyze(args) => commands::analyze::run(args),
        Command::Benchmark(args) => commands::benchmark::run(args),
        Command::Play(args) => commands::play::run(args),
        Command::Env(args) => commands::env::run(args),
        Command::Index(args) => commands::index::run(args),
        Command::Init(args) => commands::init::run(args),
        Command::Config(args) => commands::config::run(args),
    };
    let result = result.and_then(|code| match ui::output_failure() {
        Some(error) => Err(anyhow::anyhow!("standard output: {error}")),
        None => Ok(code),
    });
    match result {
        Ok(code) => code,
        Err(error) => {
            ui::error(&error);
            ExitCode::from(2)
        }
    }
}
