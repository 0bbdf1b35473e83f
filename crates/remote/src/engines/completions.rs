//! vLLM's `/v1/completions`, with token ids.

use serde::Deserialize;
use serde_json::{Value, json};

use super::dialect::{GenerateRequest, GenerateResponse, end, token_id};
use super::vllm::{self, Usage};

/// Sets all sampling fields, because servers have their own defaults (`max_tokens` 16, the model's
/// temperature).
pub(crate) fn request(request: &GenerateRequest<'_>) -> Value {
    let mut body = vllm::sampling(request);
    let own = json!({
        "request_id": request.id,
        "prompt": request.prompt,
        "add_special_tokens": false,
        "echo": false,
        "stream": false,
        "cache_salt": request.version,
        "return_token_ids": true,
        // Ids instead of texts make both lists comparable.
        "return_tokens_as_token_ids": true,
    });
    if let (Value::Object(body), Value::Object(own)) = (&mut body, own) {
        body.extend(own);
    }
    if let Some(adapter) = request.adapter() {
        body["model"] = adapter.into();
    }
    body
}

#[derive(Deserialize)]
struct Body {
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    finish_reason: Option<String>,
    token_ids: Option<Vec<u32>>,
    logprobs: Option<Logprobs>,
}

#[derive(Deserialize)]
struct Logprobs {
    token_logprobs: Vec<Option<f32>>,
    #[serde(default)]
    tokens: Vec<String>,
}

pub(crate) fn response(body: &[u8]) -> Result<GenerateResponse, String> {
    let body: Body = serde_json::from_slice(body).map_err(|error| format!("no answer of vLLM: {error}"))?;
    let choice = body.choices.into_iter().next().ok_or("an answer without choices")?;
    let Some(tokens) = choice.token_ids else {
        return Err("returns no token ids (return_token_ids), which vLLM does since 0.10.2; text cannot be trained on: take \
                    a newer vLLM"
            .into());
    };
    let entries = choice.logprobs.ok_or("an answer without log-probabilities")?;
    for (token, named) in tokens.iter().zip(&entries.tokens) {
        if token_id(named).is_some_and(|id| id != *token) {
            return Err(format!("the log-probability of another token than {token}"));
        }
    }
    let logprobs: Option<Vec<f32>> = entries.token_logprobs.into_iter().collect();
    let logprobs = logprobs.ok_or("a token without its log-probability")?;
    let end = end(choice.finish_reason.as_deref())?;
    let cached = Usage::cached(body.usage);
    Ok(GenerateResponse { tokens, logprobs, end, cached, weights: Vec::new(), prompt: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::dialect::End;

    fn body(choice: &Value) -> Vec<u8> {
        json!({ "choices": [choice], "usage": { "prompt_tokens": 3, "prompt_tokens_details": { "cached_tokens": 2 } } })
            .to_string()
            .into_bytes()
    }

    #[test]
    fn a_response_may_repeat_the_ids_of_the_longest_prompt() {
        let ids: Vec<u32> = vec![151_642; 130_000];
        let text = json!({ "prompt_token_ids": ids }).to_string();
        assert!(text.len() < crate::engines::dialect::response_limit(ids.len(), 1));
    }

    #[test]
    fn tokens_come_with_their_own_log_probabilities() {
        let choice = |ids: Value, logprobs: Value, named: Value| {
            json!({ "index": 0, "text": "I", "finish_reason": "stop", "stop_reason": 7, "token_ids": ids,
                    "logprobs": { "token_logprobs": logprobs, "tokens": named, "text_offset": [0, 1] } })
        };
        let ids = || json!([40, 7]);
        let found =
            response(&body(&choice(ids(), json!([-0.5, -0.25]), json!(["token_id:40", "token_id:7"]))))
                .unwrap();
        let (tokens, logprobs) = (vec![40, 7], vec![-0.5, -0.25]);
        assert_eq!(
            found,
            GenerateResponse {
                tokens,
                logprobs,
                end: End::Stop,
                cached: 2,
                weights: Vec::new(),
                prompt: None
            }
        );
        assert!(response(&body(&choice(ids(), json!([-0.5, -0.25]), json!(["I", "!"])))).is_ok());
        let refused = |choice: &Value| response(&body(choice)).unwrap_err();
        let shifted = choice(ids(), json!([-0.5, -0.25]), json!(["token_id:7", "token_id:40"]));
        assert!(refused(&shifted).contains("another token than 40"));
        assert!(
            refused(&choice(ids(), json!([-0.5, null]), json!([]))).contains("without its log-probability")
        );
        assert!(refused(&choice(Value::Null, json!([-0.5, -0.25]), json!([]))).contains("0.10.2"));
        let mut without = choice(ids(), json!([]), json!([]));
        without["logprobs"] = Value::Null;
        assert!(refused(&without).contains("without log-probabilities"));
    }
}
