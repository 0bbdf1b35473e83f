//! vLLM's `/inference/v1/generate`: tokens in, tokens out.

use serde::Deserialize;
use serde_json::{Value, json};

use super::dialect::{GenerateRequest, GenerateResponse, end, sampling_params, token_id};

/// All sampling fields are sent, because missing ones come from the model's
/// `generation_config.json` or from defaults such as `max_tokens` = 16. The model's end tokens are
/// in the stop tokens, so the server's own are off.
pub(crate) fn request(request: &GenerateRequest<'_>) -> Value {
    let mut body = json!({
        "request_id": request.id,
        "token_ids": request.prompt,
        "stream": false,
        // The prefix cache never mixes versions, whatever the server keys it by.
        "cache_salt": request.version,
        "sampling_params": sampling(request),
    });
    if !request.pictures.is_empty() {
        body["token_ids"] = request.pictures.collapsed(request.prompt).into();
        // An adapter leaves the tower as it is, so that its features are those of all versions.
        body["content_parts"] = request.pictures.parts((!request.adapter).then_some(request.version));
        body["return_token_ids"] = true.into();
    }
    // Without a model it is the one that the server was started with.
    if let Some(adapter) = request.adapter() {
        body["model"] = adapter.into();
    }
    body
}

/// Returns the parameters of sampling as vLLM names them.
pub(crate) fn sampling(request: &GenerateRequest<'_>) -> Value {
    let own = json!({
        "max_tokens": request.max_tokens,
        "min_tokens": 0,
        // A whole number that every JSON reader holds exactly.
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
    /// The prompt with the tokens of pictures, if `return_token_ids` is set (vLLM 0.32).
    prompt_token_ids: Option<Vec<u32>>,
}

/// Counts of tokens.
#[derive(Deserialize)]
pub(crate) struct Usage {
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

impl Usage {
    /// Returns the prompt tokens from the cache, if reported.
    pub(crate) fn cached(usage: Option<Self>) -> u64 {
        usage.and_then(|usage| usage.prompt_tokens_details?.cached_tokens).unwrap_or(0)
    }
}

#[derive(Deserialize)]
struct Choice {
    finish_reason: Option<String>,
    token_ids: Vec<u32>,
    logprobs: Option<Logprobs>,
    /// Ranges of the tokens with the version of the weights that sampled them (vLLM 0.32).
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

/// vLLM 0.32 names the token by its id, older ones by a text `token_id:123`.
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
