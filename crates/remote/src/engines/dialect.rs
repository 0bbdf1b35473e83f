//! Requests and responses common to all servers.

use serde_json::{Value, json};
use turnwise_core::SamplingParams;
use turnwise_train::config::{ServerKind, ServerRoute, ServersConfig};

use super::pictures::PromptPictures;
use super::{completions, sglang, vllm};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Generate,
    Completions,
    Sglang,
}

impl Dialect {
    pub(crate) fn of(config: &ServersConfig) -> Self {
        match (config.kind, config.route) {
            (ServerKind::Vllm, ServerRoute::Generate) => Self::Generate,
            (ServerKind::Vllm, ServerRoute::Completions) => Self::Completions,
            (ServerKind::Sglang, _) => Self::Sglang,
        }
    }

    pub(crate) fn kind(self) -> ServerKind {
        match self {
            Self::Generate | Self::Completions => ServerKind::Vllm,
            Self::Sglang => ServerKind::Sglang,
        }
    }
}

pub(crate) struct GenerateRequest<'a> {
    pub(crate) id: &'a str,
    pub(crate) version: &'a str,
    /// True if the version is an adapter, false if it consists of full weights.
    pub(crate) adapter: bool,
    /// Prompt in which the learner's own tokens represent images.
    pub(crate) prompt: &'a [u32],
    pub(crate) pictures: &'a PromptPictures,
    /// All sampling parameters except `max_tokens`, which has its own field.
    pub(crate) params: &'a SamplingParams,
    pub(crate) max_tokens: usize,
    pub(crate) seed: u64,
}

impl GenerateRequest<'_> {
    pub(crate) fn adapter(&self) -> Option<&str> {
        self.adapter.then_some(self.version)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Stop,
    Length,
    /// Aborted by the server; the tokens so far are valid.
    Abort,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GenerateResponse {
    pub(crate) tokens: Vec<u32>,
    pub(crate) logprobs: Vec<f32>,
    pub(crate) end: End,
    pub(crate) cached: u64,
    /// Versions of the weights that sampled the response; empty if the server does not report them.
    pub(crate) weights: Vec<String>,
    /// The prompt as the server parsed it, if requested.
    pub(crate) prompt: Option<Vec<u32>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Refusal {
    NoAdapter,
    Busy,
    /// The server would reject this request every time.
    Request(String),
    /// The server would reject any request, because of how it is set up.
    Setup(String),
    /// Transient.
    Failed(String),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Loading {
    Done,
    /// Permanent.
    Refused(String),
    /// Transient.
    Failed(String),
}

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

pub(crate) fn end(reason: Option<&str>) -> Result<End, String> {
    match reason {
        Some("stop") => Ok(End::Stop),
        Some("length") => Ok(End::Length),
        Some("abort") => Ok(End::Abort),
        other => Err(format!("an answer that ended with {other:?}")),
    }
}

pub(crate) fn token_id(text: &str) -> Option<u32> {
    text.strip_prefix("token_id:")?.parse().ok()
}

pub(crate) fn path(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Generate => "/inference/v1/generate",
        Dialect::Completions => "/v1/completions",
        Dialect::Sglang => "/generate",
    }
}

pub(crate) fn adapter_paths(dialect: Dialect) -> (&'static str, &'static str) {
    match dialect {
        Dialect::Generate | Dialect::Completions => ("/v1/load_lora_adapter", "/v1/unload_lora_adapter"),
        Dialect::Sglang => ("/load_lora_adapter", "/unload_lora_adapter"),
    }
}

/// Returns the header by which routers send a session's requests to the same server.
pub(crate) fn session_header(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Generate | Dialect::Completions => "x-session-id",
        Dialect::Sglang => "x-smg-routing-key",
    }
}

pub(crate) fn request(dialect: Dialect, request: &GenerateRequest<'_>) -> Value {
    match dialect {
        Dialect::Generate => vllm::request(request),
        Dialect::Completions => completions::request(request),
        Dialect::Sglang => sglang::request(request),
    }
}

/// Returns the maximum size of a response in bytes. The size depends on the prompt's length,
/// because `/v1/completions` also returns the prompt.
pub(crate) fn response_limit(prompt: usize, max_tokens: usize) -> usize {
    (64 << 10) + prompt.saturating_mul(16) + max_tokens.saturating_mul(1 << 10)
}

/// Parses a response and checks it against the request.
///
/// # Errors
/// Fails if the response is truncated, or if its lengths or log-probs are inconsistent.
pub(crate) fn response(
    dialect: Dialect,
    body: &[u8],
    max_tokens: usize,
    vocabulary: usize,
) -> Result<GenerateResponse, String> {
    let response = match dialect {
        Dialect::Generate => vllm::response(body)?,
        Dialect::Completions => completions::response(body)?,
        Dialect::Sglang => sglang::response(body)?,
    };
    let GenerateResponse { tokens, logprobs, end, .. } = &response;
    if tokens.len() != logprobs.len() {
        return Err(format!("{} tokens with {} log-probabilities", tokens.len(), logprobs.len()));
    }
    if tokens.len() > max_tokens {
        return Err(format!("{} tokens, where at most {max_tokens} were asked for", tokens.len()));
    }
    if tokens.is_empty() && *end != End::Abort {
        return Err("no tokens".into());
    }
    if *end == End::Length && tokens.len() < max_tokens {
        return Err(format!(
            "an answer cut at {} of {max_tokens} tokens; raise the server's context",
            tokens.len()
        ));
    }
    if let Some(token) = tokens.iter().find(|&&token| token as usize >= vocabulary) {
        return Err(format!("token {token}, which is outside the vocabulary of {vocabulary}"));
    }
    // vLLM writes -9999 for NaN; slightly positive values are rounding errors.
    match logprobs.iter().find(|logprob| !(**logprob > -9990.0 && **logprob < 1e-3)) {
        Some(logprob) => Err(format!("a log-probability of {logprob}")),
        None => Ok(response),
    }
}

pub(crate) fn refusal(dialect: Dialect, status: u16, body: &[u8], adapter: Option<&str>) -> Refusal {
    let message = message(body);
    if matches!(status, 400 | 404 | 422) && adapter.is_some_and(|adapter| message.contains(adapter)) {
        return Refusal::NoAdapter;
    }
    match status {
        400 | 413 | 422 => Refusal::Request(format!("the server refused the request: {message}")),
        401 => Refusal::Setup("the server wants a key; name its environment variable in api_key_env".into()),
        403..=405 => {
            let way_out = match dialect {
                Dialect::Generate => {
                    "start vLLM 0.32 or newer with --enable-scale-out, or ask by /v1/completions \
                     (rollout.engine.route = \"completions\")"
                }
                Dialect::Completions => "is it a vLLM server?",
                Dialect::Sglang => "is it an SGLang server?",
            };
            Refusal::Setup(format!("{} is refused with status {status}; {way_out}", path(dialect)))
        }
        408 | 429 | 503 => Refusal::Busy,
        _ => Refusal::Failed(format!("status {status}: {message}")),
    }
}

pub(crate) fn loaded(dialect: Dialect, status: u16, body: &[u8]) -> Loading {
    let message = message(body);
    match status {
        200 => Loading::Done,
        // Names derive from content, so the adapter is the same.
        400 if message.contains("already") => Loading::Done,
        404 | 405 if !message.to_lowercase().contains("adapter") => Loading::Refused(match dialect {
            Dialect::Generate | Dialect::Completions => {
                "has no adapters to load at run time; start vLLM with --enable-lora --max-lora-rank RANK \
                                 and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment"
                    .into()
            }
            Dialect::Sglang => "has no adapters to load at run time; start SGLang with --enable-lora \
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

pub(crate) fn message(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let found = serde_json::from_str::<Value>(&text).ok().and_then(|value| {
        let at = |path: &str| value.pointer(path).and_then(Value::as_str).map(str::to_owned);
        at("/error/message")
            .or_else(|| at("/message"))
            .or_else(|| at("/error_message"))
            .or_else(|| at("/error"))
            .or_else(|| at("/detail"))
    });
    let text = found.unwrap_or_else(|| text.into_owned());
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect()
}
