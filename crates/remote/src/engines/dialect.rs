//! Requests and answers that all servers have in common; `vllm.rs` and `sglang.rs` write and read them.

use serde_json::{Value, json};
use turnwise_core::SamplingParams;
use turnwise_train::config::ServerKind;

use super::{sglang, vllm};

/// A prompt to be answered.
pub(crate) struct Question<'a> {
    /// Name of the request, for the server's log.
    pub(crate) id: &'a str,
    /// Name of the adapter.
    pub(crate) adapter: &'a str,
    /// The prompt.
    pub(crate) prompt: &'a [u32],
    /// Parameters of sampling; `max_tokens` is the field below.
    pub(crate) params: &'a SamplingParams,
    /// Longest answer.
    pub(crate) max_tokens: usize,
    /// Seed of the draws.
    pub(crate) seed: u64,
}

/// Reason why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// A stop token or a stop string.
    Stop,
    /// The longest answer.
    Length,
    /// The server gave up; the tokens so far are good.
    Abort,
}

/// The tokens of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) tokens: Vec<u32>,
    pub(crate) logprobs: Vec<f32>,
    pub(crate) end: End,
    /// Prompt tokens that the server did not compute again, where it says so.
    pub(crate) cached: u64,
}

/// A refusal as the client understands it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Refusal {
    /// The server does not have the adapter (any more).
    NoAdapter,
    /// It cannot take requests now.
    Busy,
    /// This request will always be refused.
    Request(String),
    /// Every request will be: the server is not set up for this.
    Setup(String),
    /// It failed; another time it may not.
    Failed(String),
}

/// The outcome of a call that loads or unloads an adapter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Loading {
    /// It is there (or, unloading, gone), now or before.
    Done,
    /// It cannot be, whatever is tried.
    Refused(String),
    /// Another time it may.
    Failed(String),
}

/// Every parameter of sampling: those whose names all servers share, and the server's own.
pub(crate) fn sampling_params(params: &SamplingParams, own: Value) -> Value {
    let mut all = json!({
        "n": 1,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": if params.top_k == 0 { -1 } else { params.top_k as i64 },
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "stop": params.stop_strings,
        "stop_token_ids": params.stop_tokens,
        "ignore_eos": true,
        "skip_special_tokens": false,
        "spaces_between_special_tokens": false,
    });
    if let (Value::Object(all), Value::Object(own)) = (&mut all, own) {
        all.extend(own);
    }
    all
}

/// Path of the requests.
pub(crate) fn path(kind: ServerKind) -> &'static str {
    match kind {
        ServerKind::Vllm => "/inference/v1/generate",
        ServerKind::Sglang => "/generate",
    }
}

/// Paths of loading and unloading adapters.
pub(crate) fn adapter_paths(kind: ServerKind) -> (&'static str, &'static str) {
    match kind {
        ServerKind::Vllm => ("/v1/load_lora_adapter", "/v1/unload_lora_adapter"),
        ServerKind::Sglang => ("/load_lora_adapter", "/unload_lora_adapter"),
    }
}

/// Header by which routers keep a session with one server.
pub(crate) fn session_header(kind: ServerKind) -> &'static str {
    match kind {
        ServerKind::Vllm => "x-session-id",
        ServerKind::Sglang => "x-smg-routing-key",
    }
}

/// Body of a request.
pub(crate) fn request(kind: ServerKind, question: &Question<'_>) -> Value {
    match kind {
        ServerKind::Vllm => vllm::request(question),
        ServerKind::Sglang => sglang::request(question),
    }
}

/// Longest answer in bytes to a request of so many tokens: an entry takes some 200.
pub(crate) fn answer_limit(max_tokens: usize) -> usize {
    (64 << 10) + max_tokens.saturating_mul(1 << 10)
}

/// Reads an answer and holds it against the request.
///
/// # Errors
/// It is none: cut off, or its numbers do not fit each other.
pub(crate) fn answer(
    kind: ServerKind,
    body: &[u8],
    asked: usize,
    vocabulary: usize,
) -> Result<Answer, String> {
    let answer = match kind {
        ServerKind::Vllm => vllm::answer(body)?,
        ServerKind::Sglang => sglang::answer(body)?,
    };
    let Answer { tokens, logprobs, end, .. } = &answer;
    if tokens.len() != logprobs.len() {
        return Err(format!("{} tokens with {} log-probabilities", tokens.len(), logprobs.len()));
    }
    if tokens.len() > asked {
        return Err(format!("{} tokens, where at most {asked} were asked for", tokens.len()));
    }
    if tokens.is_empty() && *end != End::Abort {
        return Err("no tokens".into());
    }
    if *end == End::Length && tokens.len() < asked {
        return Err(format!(
            "an answer cut at {} of {asked} tokens; raise the server's context",
            tokens.len()
        ));
    }
    if let Some(token) = tokens.iter().find(|&&token| token as usize >= vocabulary) {
        return Err(format!("token {token}, which is outside the vocabulary of {vocabulary}"));
    }
    // vLLM writes -9999 for what is not a number; a little above 0 is rounding.
    match logprobs.iter().find(|logprob| !(**logprob > -9990.0 && **logprob < 1e-3)) {
        Some(logprob) => Err(format!("a log-probability of {logprob}")),
        None => Ok(answer),
    }
}

/// Reads a refusal.
pub(crate) fn refusal(kind: ServerKind, status: u16, body: &[u8], adapter: &str) -> Refusal {
    let message = message(body);
    if matches!(status, 400 | 404 | 422) && message.contains(adapter) {
        return Refusal::NoAdapter;
    }
    match status {
        400 | 413 | 422 => Refusal::Request(format!("the server refused the request: {message}")),
        401 => Refusal::Setup("the server wants a key; name its environment variable in api_key_env".into()),
        403..=405 => Refusal::Setup(match kind {
            ServerKind::Vllm => format!(
                "{} is refused with status {status}; start vLLM 0.32 or newer with --enable-scale-out",
                path(kind)
            ),
            ServerKind::Sglang => {
                format!("{} is refused with status {status}; is it an SGLang server?", path(kind))
            }
        }),
        408 | 429 | 503 => Refusal::Busy,
        _ => Refusal::Failed(format!("status {status}: {message}")),
    }
}

/// Reads the answer to a call that loads an adapter.
pub(crate) fn loaded(kind: ServerKind, status: u16, body: &[u8]) -> Loading {
    let message = message(body);
    match status {
        200 => Loading::Done,
        // Names are made from the content: what has the name is the same adapter.
        400 if message.contains("already") => Loading::Done,
        404 | 405 if !message.to_lowercase().contains("adapter") => Loading::Refused(match kind {
            ServerKind::Vllm => {
                "has no adapters to load at run time; start vLLM with --enable-lora --max-lora-rank RANK \
                                 and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment"
                    .into()
            }
            ServerKind::Sglang => "has no adapters to load at run time; start SGLang with --enable-lora \
                                   --max-lora-rank RANK --lora-target-modules all"
                .into(),
        }),
        404 => Loading::Refused(format!(
            "does not find the adapter's folder ({message}); adapter_dir must be shared with it, and \
             server_adapter_dir be its path there"
        )),
        400..=499 if !matches!(status, 408 | 429) => {
            Loading::Refused(format!("refused the adapter (status {status}): {message}"))
        }
        _ => Loading::Failed(format!("status {status} on loading an adapter: {message}")),
    }
}

/// The message of an error's body, at most 300 characters of it.
fn message(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let found = serde_json::from_str::<Value>(&text).ok().and_then(|value| {
        let at = |path: &str| value.pointer(path).and_then(Value::as_str).map(str::to_owned);
        at("/error/message")
            .or_else(|| at("/message"))
            .or_else(|| at("/error_message"))
            .or_else(|| at("/detail"))
    });
    let text = found.unwrap_or_else(|| text.into_owned());
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect()
}
