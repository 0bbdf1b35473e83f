#[cfg(feature = "serve")]
mod start;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::chat::DeviceName;

#[cfg(feature = "serve")]
const KEY_VARIABLE: &str = "TURNWISE_API_KEY";

/// Serve a policy over an OpenAI-compatible API: chat, completions, streaming, tools, log-probs.
///
/// Clients use the base URL http://ADDRESS/v1. Each checkpoint of a run is a model
/// (NAME@step-000012) that loads on its first request. Requires a build with --features serve.
#[derive(Args)]
pub(crate) struct ServeArgs {
    /// A model folder, an adapter, a run directory (newest checkpoint), a checkpoint, or a hub
    /// model.
    model: PathBuf,
    /// Model name that clients use [default: the folder's name].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Serve another adapter or model under this name; repeatable.
    #[arg(long, value_name = "NAME=PATH")]
    adapter: Vec<String>,
    /// Address to listen on; port 0 picks a free port.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8000")]
    address: String,
    /// Allow an address that is reachable from other machines; set an API key as well.
    #[arg(long)]
    allow_remote: bool,
    /// API key that clients must send. Prefer the environment variable TURNWISE_API_KEY, which
    /// process lists do not show.
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// Maximum tokens of prompt plus response [default: the model's limit, at most 8192].
    #[arg(long, value_name = "TOKENS")]
    max_model_len: Option<usize>,
    /// Maximum number of sequences per model that are batched together; others wait.
    #[arg(long, value_name = "N", default_value_t = 64)]
    max_num_seqs: usize,
    /// Maximum number of waiting plus running sequences per model; further requests get status 429.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    max_queued: usize,
    /// Maximum number of models in memory; idle models are unloaded to make room.
    #[arg(long, value_name = "N", default_value_t = 4)]
    max_loaded: usize,
    /// Maximum number of connections; further clients wait.
    #[arg(long, value_name = "N", default_value_t = 256)]
    connections: usize,
    /// Number of threads for sampling [default: the number of cores].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Format of the model's tool calls [default: detected from its chat template].
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
    /// Calls in a Python list (Llama 3.2, Llama 4).
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
