//! `turnwise serve`: an OpenAI-compatible server of trained policies.

#[cfg(feature = "serve")]
mod start;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::chat::DeviceName;

/// Variable with the API key.
#[cfg(feature = "serve")]
const KEY_VARIABLE: &str = "TURNWISE_API_KEY";

/// Serve a policy to OpenAI clients: chat and text completions, streams, tools, log-probs.
///
/// Programs that speak OpenAI's interface use http://ADDRESS/v1 as their base URL. The checkpoints
/// of a run are models of their own (NAME@step-000012), loaded when they are first asked for.
/// Needs a program that was built with --features serve.
#[derive(Args)]
pub(crate) struct ServeArgs {
    /// A model folder, an adapter, a run directory (its newest checkpoint), a checkpoint, or a
    /// model of the hub.
    model: PathBuf,
    /// Name of the model for clients [default: the name of its folder].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Serve another adapter or model under a name; repeatable.
    #[arg(long, value_name = "NAME=PATH")]
    adapter: Vec<String>,
    /// Address to listen on; port 0 selects a free port.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8000")]
    address: String,
    /// Allow an address that other machines can reach. Set an API key, too.
    #[arg(long)]
    allow_remote: bool,
    /// API key that requests must have. The variable TURNWISE_API_KEY does the same and is not
    /// seen in lists of processes.
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// Maximum tokens of a prompt and its response together [default: the model's limit, at most
    /// 8192].
    #[arg(long, value_name = "TOKENS")]
    max_context: Option<usize>,
    /// Maximum sequences of a model in one batch; more wait.
    #[arg(long, value_name = "N", default_value_t = 64)]
    max_num_seqs: usize,
    /// Maximum sequences of a model that wait or are in work; more get status 429.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    max_queued: usize,
    /// Maximum models in memory; idle ones make room.
    #[arg(long, value_name = "N", default_value_t = 4)]
    max_loaded: usize,
    /// Maximum connections; more wait.
    #[arg(long, value_name = "N", default_value_t = 256)]
    connections: usize,
    /// Threads that sample [default: the number of cores].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Format in which the model calls tools [default: by its chat template].
    #[arg(long, value_enum, value_name = "FORMAT")]
    tool_calls: Option<ToolCalls>,
    /// Device to run the models on.
    #[arg(long, value_enum, default_value_t)]
    device: DeviceName,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ToolCalls {
    /// JSON in `<tool_call>` tags (Qwen, Hermes).
    Hermes,
    /// JSON objects (Llama 3).
    Llama,
    /// A Python list of calls (Llama 3.2, Llama 4).
    Python,
}

/// Runs the command.
#[cfg(feature = "serve")]
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    start::run(args)
}

/// Rejects the command.
#[cfg(not(feature = "serve"))]
pub(crate) fn run(_args: &ServeArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!(
        "this program was built without the server: build it with `cargo build --release -p turnwise-cli --features serve`"
    )
}
