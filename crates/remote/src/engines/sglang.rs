//! SGLang's `/generate`.

use serde::Deserialize;
use serde_json::{Value, json};

use super::dialect::{GenerateRequest, GenerateResponse, end, sampling_params};

/// Sets all sampling fields. The seed has an effect only with deterministic inference. `ignore_eos`
/// is not set, because SGLang would then also ignore stop tokens; the model's EOS tokens therefore
/// always end a response.
pub(crate) fn request(request: &GenerateRequest<'_>) -> Value {
    let GenerateRequest { id, prompt, params, max_tokens, seed, .. } = request;
    let sampling = sampling_params(
        params,
        json!({
            "max_new_tokens": max_tokens,
            "min_new_tokens": 0,
            "sampling_seed": seed >> 33,
            "no_stop_trim": true,
            "ignore_eos": false,
        }),
    );
    json!({
        "rid": id,
        "input_ids": prompt,
        "lora_path": request.adapter(),
        "stream": false,
        "return_logprob": true,
        "logprob_start_len": -1,
        "sampling_params": sampling,
    })
}

#[derive(Deserialize)]
struct Body {
    meta_info: Meta,
}

#[derive(Deserialize)]
struct Meta {
    finish_reason: Finish,
    #[serde(default)]
    cached_tokens: u64,
    weight_version: Option<String>,
    #[serde(default)]
    output_token_logprobs: Vec<(f32, u32, Value)>,
}

#[derive(Deserialize)]
struct Finish {
    r#type: String,
    #[serde(default)]
    matched: Value,
}

pub(crate) fn response(body: &[u8]) -> Result<GenerateResponse, String> {
    let body: Body = serde_json::from_slice(body).map_err(|error| format!("no answer of SGLang: {error}"))?;
    let Meta { finish_reason, cached_tokens: cached, weight_version, output_token_logprobs: entries } =
        body.meta_info;
    let (logprobs, tokens): (Vec<f32>, Vec<u32>) =
        entries.into_iter().map(|(logprob, token, _)| (logprob, token)).unzip();
    let end = end(Some(&finish_reason.r#type))?;
    // The matched token belongs to the response.
    if let Some(token) = finish_reason.matched.as_u64()
        && tokens.last().is_none_or(|&last| u64::from(last) != token)
    {
        return Err(format!("an answer without the stop token {token} that ended it"));
    }
    let weights = weight_version.into_iter().collect();
    Ok(GenerateResponse { tokens, logprobs, end, cached, weights, prompt: None })
}
