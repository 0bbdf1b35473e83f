//! Requests and responses of `/inference/v1/generate`, `/v1/completions` and SGLang's `/generate`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};
use turnwise_core::{Completion, FinishReason, SamplingParams};

use super::{Asked, Inner, error, pictures, respond};

fn numbers(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|token| token.as_u64().unwrap() as u32).collect()
}

/// Reads a request whose fields of sampling are `fields`.
fn asked(body: &Value, fields: &Value, [prompt, adapter, longest, seed]: [&str; 4]) -> Asked {
    let number = |key: &str| fields[key].as_f64().unwrap_or_else(|| panic!("{key} is not sent"));
    // What a server would fill in from the model's files, or forbid, must not be left to it.
    for (key, neutral) in
        [("min_p", 0.0), ("presence_penalty", 0.0), ("frequency_penalty", 0.0), ("repetition_penalty", 1.0)]
    {
        assert_eq!(number(key), neutral, "{key}");
    }
    // vLLM looks for stop tokens where it ignores the end of a text; SGLang looks for none then.
    let ignores = prompt != "input_ids";
    assert_eq!((fields["ignore_eos"].as_bool(), body["stream"].as_bool()), (Some(ignores), Some(false)));
    let top_k = number("top_k");
    assert_ne!(top_k, 0.0, "0 is not all everywhere");
    let strings = fields["stop"].as_array().unwrap().iter().map(|stop| stop.as_str().unwrap().to_owned());
    Asked {
        prompt: numbers(&body[prompt]),
        pictures: pictures::read(&body["content_parts"]),
        adapter: body[adapter].as_str().map(str::to_owned),
        seed: fields[seed].as_u64().unwrap(),
        params: SamplingParams {
            temperature: number("temperature") as f32,
            top_p: number("top_p") as f32,
            top_k: top_k.max(0.0) as usize,
            max_tokens: number(longest) as usize,
            stop_tokens: numbers(&fields["stop_token_ids"]),
            stop_strings: strings.collect(),
        },
    }
}

/// The name of an adapter in the words of a refusal.
fn unknown(asked: &Asked, text: &str) -> String {
    text.replace("NAME", asked.adapter.as_deref().unwrap_or("base"))
}

/// True if answers say by which weights they are.
fn says_weights(state: &Inner) -> bool {
    !state.switches.no_weight_versions.load(Ordering::Relaxed)
}

pub(super) async fn generate(
    State(state): State<Arc<Inner>>,
    headers: axum::http::HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    if state.switches.no_scale_out.load(Ordering::Relaxed) {
        return error(403, "Scale-out endpoints are disabled");
    }
    let session = headers["x-session-id"].to_str().unwrap().to_owned();
    let said = says_weights(&state);
    let of_vllm = |found: &Completion, version: &str| {
        let entry =
            |(token, logprob): (&u32, &f32)| json!({ "token_id": token, "logprob": logprob, "rank": 1 });
        let content: Vec<Value> = found.tokens.iter().zip(&found.logprobs).map(entry).collect();
        let spans = json!([{ "version": version, "start": 0, "end": found.tokens.len() }]);
        json!({ "request_id": "generate-tokens-1", "prompt_logprobs": null, "choices": [{
            "index": 0, "finish_reason": reason(found), "token_ids": found.tokens, "logprobs": { "content": content },
            "weight_versions": if said { spans } else { Value::Null },
        }] })
    };
    let asked = asked(&body, &body["sampling_params"], ["token_ids", "model", "max_tokens", "seed"]);
    let unknown = unknown(&asked, "The model `NAME` does not exist.");
    respond(&state, session, body, asked, (404, unknown), of_vllm).await
}

pub(super) async fn completions(
    State(state): State<Arc<Inner>>,
    headers: axum::http::HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    let session = headers["x-session-id"].to_str().unwrap().to_owned();
    assert_eq!((body["return_token_ids"].as_bool(), body["logprobs"].as_u64()), (Some(true), Some(0)));
    assert_eq!((body["echo"].as_bool(), body["add_special_tokens"].as_bool()), (Some(false), Some(false)));
    assert!(body["cache_salt"].as_str().is_some_and(|salt| !salt.is_empty()));
    let ids = !state.switches.no_token_ids.load(Ordering::Relaxed);
    let prompt = body["prompt"].clone();
    let of_completions = |found: &Completion, _: &str| {
        let named: Vec<String> = found.tokens.iter().map(|token| format!("token_id:{token}")).collect();
        json!({ "id": "cmpl-1", "object": "text_completion", "choices": [{
            "index": 0, "text": "", "finish_reason": reason(found),
            "token_ids": if ids { json!(found.tokens) } else { Value::Null },
            // Asked for token ids, it says those of the prompt, too.
            "prompt_token_ids": if ids { prompt.clone() } else { Value::Null },
            "logprobs": { "token_logprobs": found.logprobs, "tokens": named, "top_logprobs": null, "text_offset": [] },
        }], "usage": { "prompt_tokens": 1, "prompt_tokens_details": null } })
    };
    // What is not sent is 16 tokens here.
    let mut filled = body.clone();
    if filled["max_tokens"].is_null() {
        filled["max_tokens"] = json!(16);
    }
    let asked = asked(&filled, &filled, ["prompt", "model", "max_tokens", "seed"]);
    let unknown = unknown(&asked, "The model `NAME` does not exist.");
    respond(&state, session, body, asked, (404, unknown), of_completions).await
}

pub(super) async fn sglang(
    State(state): State<Arc<Inner>>,
    headers: axum::http::HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    let session = headers["x-smg-routing-key"].to_str().unwrap().to_owned();
    let said = says_weights(&state);
    let of_sglang = |found: &Completion, version: &str| {
        let entries: Vec<Value> = found
            .tokens
            .iter()
            .zip(&found.logprobs)
            .map(|(token, logprob)| json!([logprob, token, null]))
            .collect();
        let mut finish = json!({ "type": reason(found) });
        if found.finish == FinishReason::Stop {
            finish["matched"] = json!(found.tokens.last());
        }
        json!({ "text": "", "output_ids": found.tokens, "meta_info": {
            "id": "1", "finish_reason": finish, "cached_tokens": 0, "output_token_logprobs": entries,
            "weight_version": if said { json!(version) } else { Value::Null },
        } })
    };
    let asked =
        asked(&body, &body["sampling_params"], ["input_ids", "lora_path", "max_new_tokens", "sampling_seed"]);
    let unknown = unknown(&asked, "The following requested LoRA adapters are not loaded: {'NAME'}");
    respond(&state, session, body, asked, (400, unknown), of_sglang).await
}

fn reason(found: &Completion) -> &'static str {
    match found.finish {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        // The one that this double has no other use for.
        FinishReason::Context => "abort",
    }
}
