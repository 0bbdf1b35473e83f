//! The `turnwise` command: trains multi-turn LLM agents with reinforcement learning.

mod commands;
mod memory;
mod ui;
mod worlds;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

// Large blocks are kept instead of being given back to the system after every micro-batch; `memory` keeps them
// for longer where there is room.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Train multi-turn LLM agents with reinforcement learning, and see which turns earned the success.
#[derive(Parser)]
#[command(name = "turnwise", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train a small agent from nothing in a few minutes and show what it learnt.
    Quickstart(commands::quickstart::QuickstartArgs),
    /// Train: warm start, then reinforcement learning, as a config says.
    Train(commands::train::TrainArgs),
    /// Train a grid or list of configs times seeds, some at a time; goes on where it was stopped.
    Sweep(commands::sweep::SweepArgs),
    /// Compare runs: success over seeds with intervals, paired tests, learning curves.
    Compare(commands::compare::CompareArgs),
    /// Only the supervised warm start of a config.
    Sft(commands::train::SftArgs),
    /// Success of a run, checkpoint or model on pinned tasks, with 95 % intervals.
    Eval(commands::eval::EvalArgs),
    /// Play tasks with a policy and write the trajectories.
    Rollout(commands::rollout::RolloutArgs),
    /// Write a policy as a model or adapter that transformers, PEFT and vLLM load.
    Export(commands::export::ExportArgs),
    /// Talk to a model in the terminal.
    Chat(commands::chat::ChatArgs),
    /// Compute advantages for trajectories you already have.
    Credit(commands::credit::CreditArgs),
    /// Look at trajectories in a browser: every turn, its advantage, and how it came about.
    View(commands::view::ViewArgs),
    /// Train and inspect the learned decomposer of returns.
    Turnrd(commands::turnrd::TurnrdArgs),
    /// Analysis of a policy or a run: what the papers report of their turns besides success.
    Analyze(commands::analyze::AnalyzeArgs),
    /// Play an environment yourself in the terminal.
    Play(commands::play::PlayArgs),
    /// List, generate and replay environments.
    Env(commands::env::EnvArgs),
    /// Build, ask and serve indexes of passages.
    Index(commands::index::IndexArgs),
    /// Write files to start from: a world in Python with a tool, its config and a test.
    Init(commands::init::InitArgs),
    /// Show or check a config.
    Config(commands::config::ConfigArgs),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Quickstart(args) => commands::quickstart::run(args),
        Command::Train(args) => commands::train::run(args),
        Command::Sweep(args) => commands::sweep::run(&args),
        Command::Compare(args) => commands::compare::run(args),
        Command::Sft(args) => commands::train::run_sft(args),
        Command::Eval(args) => commands::eval::run(args),
        Command::Rollout(args) => commands::rollout::run(args),
        Command::Export(args) => commands::export::run(&args),
        Command::Chat(args) => commands::chat::run(args),
        Command::Credit(args) => commands::credit::run(&args),
        Command::View(args) => commands::view::run(&args),
        Command::Turnrd(args) => commands::turnrd::run(args),
        Command::Analyze(args) => commands::analyze::run(args),
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
