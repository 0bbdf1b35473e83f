//! vLLM's `/inference/v1/generate`: tokens in, tokens out.

use serde::Deserialize;
use serde_json::{Value, json};

use super::dialect::{Answer, End, Question, sampling_params};

/// Every field of sampling is sent: what is left out comes from the model's `generation_config.json` or from defaults such as
/// `max_tokens` = 16. The end tokens are among the stop tokens, so that the server's own are switched off.
pub(crate) fn request(question: &Question<'_>) -> Value {
    let Question { id, adapter, prompt, params, max_tokens, seed } = question;
    let sampling = sampling_params(
        params,
        json!({
            "max_tokens": max_tokens,
            "min_tokens": 0,
            // A whole number that every JSON reader holds exactly.
            "seed": seed >> 11,
            "include_stop_str_in_output": true,
            "logprobs": 0,
        }),
    );
    json!({
        "request_id": id,
        "model": adapter,
        "token_ids": prompt,
        "stream": false,
        // The prefix cache never mixes versions, whatever the server keys it by.
        "cache_salt": adapter,
        "sampling_params": sampling,
    })
}

#[derive(Deserialize)]
struct Body {
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Usage {
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Choice {
    finish_reason: Option<String>,
    token_ids: Vec<u32>,
    logprobs: Option<Logprobs>,
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

pub(crate) fn answer(body: &[u8]) -> Result<Answer, String> {
    let body: Body = serde_json::from_slice(body).map_err(|error| format!("no answer of vLLM: {error}"))?;
    let cached = body.usage.and_then(|usage| usage.prompt_tokens_details?.cached_tokens).unwrap_or(0);
    let choice = body.choices.into_iter().next().ok_or("an answer without choices")?;
    let entries = choice.logprobs.and_then(|logprobs| logprobs.content).unwrap_or_default();
    for (token, entry) in choice.token_ids.iter().zip(&entries) {
        let text = || entry.token.as_deref()?.strip_prefix("token_id:")?.parse().ok();
        if entry.token_id.or_else(text).is_some_and(|id| id != *token) {
            return Err(format!("the log-probability of another token than {token}"));
        }
    }
    let end = match choice.finish_reason.as_deref() {
        Some("stop") => End::Stop,
        Some("length") => End::Length,
        Some("abort") => End::Abort,
        other => return Err(format!("an answer that ended with {other:?}")),
    };
    let logprobs = entries.iter().map(|entry| entry.logprob).collect();
    Ok(Answer { tokens: choice.token_ids, logprobs, end, cached })
}
