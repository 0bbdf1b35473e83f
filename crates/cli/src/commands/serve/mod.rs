//! `turnwise serve`: an OpenAI-compatible server of trained policies.

#[cfg(feature = "serve")]
mod start;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::chat::DeviceName;

#[cfg(feature = "serve")]
const KEY_VARIABLE: &str = "TURNWISE_API_KEY";

/// Serve a policy to OpenAI clients: chat and text completions, streams, tools, log-probs.
///
/// The base URL for clients is http://ADDRESS/v1. Each checkpoint of a run is a model
/// (NAME@step-000012) that is loaded at its first request. Needs a build with --features serve.
#[derive(Args)]
pub(crate) struct ServeArgs {
    /// A model folder, an adapter, a run directory (its newest checkpoint), a checkpoint, or a hub
    /// model.
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
    /// Allow an address that other machines can reach; also set an API key.
    #[arg(long)]
    allow_remote: bool,
    /// API key that requests must send. Prefer the variable TURNWISE_API_KEY, which process lists
    /// do not show.
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// Maximum tokens of prompt and response together [default: the model's limit, at most 8192].
    #[arg(long, value_name = "TOKENS")]
    max_model_len: Option<usize>,
    /// Maximum sequences of a model in one batch; further ones wait.
    #[arg(long, value_name = "N", default_value_t = 64)]
    max_num_seqs: usize,
    /// Maximum waiting and running sequences of a model; further ones get status 429.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    max_queued: usize,
    /// Maximum models in memory; idle ones are unloaded.
    #[arg(long, value_name = "N", default_value_t = 4)]
    max_loaded: usize,
    /// Maximum connections; further ones wait.
    #[arg(long, value_name = "N", default_value_t = 256)]
    connections: usize,
    /// Number of sampling threads [default: the number of cores].
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

#[cfg(feature = "serve")]
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    start::run(args)
}

#[cfg(not(feature = "serve"))]
pub(crate) fn run(_args: &ServeArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!(
        "this program was built without the server: build it with `cargo build --release -p turnwise-cli --features serve`"
    )
}
