//! vLLM's `/inference/v1/generate`, with token ids.

use serde::Deserialize;
use serde_json::{Value, json};

use super::dialect::{GenerateRequest, GenerateResponse, end, sampling_params, token_id};

/// Sets all sampling fields, because vLLM has other defaults (`generation_config.json`,
/// `max_tokens` 16). The server's own EOS handling is off, because the stop tokens include EOS.
pub(crate) fn request(request: &GenerateRequest<'_>) -> Value {
    let mut body = json!({
        "request_id": request.id,
        "token_ids": request.prompt,
        "stream": false,
        // Separates versions in the prefix cache.
        "cache_salt": request.version,
        "sampling_params": sampling(request),
    });
    if !request.pictures.is_empty() {
        body["token_ids"] = request.pictures.collapsed(request.prompt).into();
        // Adapters share the tower's features.
        body["content_parts"] = request.pictures.parts((!request.adapter).then_some(request.version));
        body["return_token_ids"] = true.into();
    }
    // Without `model`, the server uses its initial one.
    if let Some(adapter) = request.adapter() {
        body["model"] = adapter.into();
    }
    body
}

pub(crate) fn sampling(request: &GenerateRequest<'_>) -> Value {
    let own = json!({
        "max_tokens": request.max_tokens,
        "min_tokens": 0,
        // JSON parsers keep 53 bits exactly.
        "seed": request.seed >> 11,
        "include_stop_str_in_output": true,
        "logprobs": 0,
    });
    sampling_params(request.params, own)
}

#[derive(Deserialize)]
struct Body {
    choices: Vec<Choice>,
    usage: Option<Usage>,
    /// The prompt with image tokens, if `return_token_ids` is set (vLLM 0.32).
    prompt_token_ids: Option<Vec<u32>>,
}

#[derive(Deserialize)]
pub(crate) struct Usage {
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

impl Usage {
    pub(crate) fn cached(usage: Option<Self>) -> u64 {
        usage.and_then(|usage| usage.prompt_tokens_details?.cached_tokens).unwrap_or(0)
    }
}

#[derive(Deserialize)]
struct Choice {
    finish_reason: Option<String>,
    token_ids: Vec<u32>,
    logprobs: Option<Logprobs>,
    /// Token ranges, each with the version that sampled it (vLLM 0.32).
    weight_versions: Option<Vec<Span>>,
}

#[derive(Deserialize)]
struct Span {
    version: String,
}

#[derive(Deserialize)]
struct Logprobs {
    content: Option<Vec<Entry>>,
}

/// A token's log-prob. vLLM 0.32 returns the token's id, and older versions return the text
/// `token_id:123`.
#[derive(Deserialize)]
struct Entry {
    token_id: Option<u32>,
    token: Option<String>,
    logprob: f32,
}

pub(crate) fn response(body: &[u8]) -> Result<GenerateResponse, String> {
    let body: Body = serde_json::from_slice(body).map_err(|error| format!("no answer of vLLM: {error}"))?;
    let cached = Usage::cached(body.usage);
    let choice = body.choices.into_iter().next().ok_or("an answer without choices")?;
    let entries = choice.logprobs.and_then(|logprobs| logprobs.content).unwrap_or_default();
    for (token, entry) in choice.token_ids.iter().zip(&entries) {
        let text = || token_id(entry.token.as_deref()?);
        if entry.token_id.or_else(text).is_some_and(|id| id != *token) {
            return Err(format!("the log-probability of another token than {token}"));
        }
    }
    let end = end(choice.finish_reason.as_deref())?;
    let logprobs = entries.iter().map(|entry| entry.logprob).collect();
    let spans = choice.weight_versions.unwrap_or_default();
    let weights = spans.into_iter().map(|span| span.version).collect();
    Ok(GenerateResponse {
        tokens: choice.token_ids,
        logprobs,
        end,
        cached,
        weights,
        prompt: body.prompt_token_ids,
    })
}
