//! Samples responses from the service.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use prost::Message as _;
use serde_json::{Value, json};
use turnwise_core::{
    Completion, FinishReason, RequestId, SampleError, SampleRequest, Sampler, SamplingParams,
};
use turnwise_text::{Tokenizer, stop_length};

use super::client::Client;
use super::error::TinkerError;
use super::proto::{SampleResponse, read_floats, read_tokens};
use super::requests::{Outcome, Repeat};
use super::transport::Payload;
use crate::thread::Outcomes;

/// Samples from a session's weights.
///
/// Log-probs are at temperature 1 over the full vocabulary. [`Completion::entropies`] is empty. If
/// a request has stop tokens and stop strings, Turnwise checks the strings, because the service
/// accepts only one of the two.
pub struct TinkerSampler {
    client: Arc<Client>,
    session: String,
    version: u64,
    tokenizer: Arc<Tokenizer>,
    max_model_len: usize,
    next: RequestId,
    open: BTreeMap<RequestId, Asked>,
    responses: Outcomes<Result<Sampled, TinkerError>>,
    done: Vec<Completion>,
    failures: Vec<(RequestId, String)>,
}

struct Asked {
    stop_strings: Vec<String>,
    /// True if the context length limits the response more than `max_tokens` does.
    context: bool,
}

struct Sampled {
    tokens: Vec<u32>,
    logprobs: Vec<f32>,
    stopped: bool,
}

impl TinkerSampler {
    /// Creates a sampler for a [`Client::sampling_session`] with weights of this `version`.
    pub fn new(
        client: Arc<Client>,
        session: String,
        version: u64,
        tokenizer: Arc<Tokenizer>,
        max_model_len: usize,
    ) -> Self {
        let (open, done, failures) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self {
            client,
            session,
            version,
            tokenizer,
            max_model_len,
            next: 0,
            open,
            responses: Outcomes::new(),
            done,
            failures,
        }
    }

    fn take(
        &mut self,
        (request, found): (RequestId, Result<Sampled, TinkerError>),
    ) -> Result<(), SampleError> {
        let Some(asked) = self.open.remove(&request) else { return Ok(()) };
        let Sampled { mut tokens, mut logprobs, stopped } = match found {
            Ok(sampled) => sampled,
            // Only this prompt is rejected.
            Err(error @ TinkerError::Refused { status: 400 | 413 | 422, .. }) => {
                self.failures.push((request, error.to_string()));
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let mut finish = match (stopped, asked.context) {
            (true, _) => FinishReason::Stop,
            (false, true) => FinishReason::Context,
            (false, false) => FinishReason::Length,
        };
        if let Some(length) = stop_length(&self.tokenizer, &tokens, &asked.stop_strings) {
            tokens.truncate(length);
            logprobs.truncate(length);
            finish = FinishReason::Stop;
        }
        let weights_version = self.version;
        let entropies = Vec::new();
        self.done.push(Completion { request, tokens, logprobs, entropies, finish, weights_version });
        Ok(())
    }
}

impl Sampler for TinkerSampler {
    fn submit(&mut self, request: SampleRequest) -> Result<RequestId, SampleError> {
        let id = self.next;
        self.next += 1;
        request.check_prompt(id, self.max_model_len, None)?;
        if let Some(empty) = request.answer_without_tokens(id, self.max_model_len, self.version) {
            self.done.push(empty);
            return Ok(id);
        }
        let SampleRequest { prompt, params, seed, .. } = request;
        let room = self.max_model_len - prompt.len();
        let number = (seed.rng().bits() >> 33) as u32;
        let body = self.body(&prompt, &params, room, number);
        self.open.insert(id, Asked { stop_strings: params.stop_strings, context: room < params.max_tokens });
        let (requests, promise) = (Arc::clone(self.client.requests()), self.responses.promise(id));
        self.client.handle().spawn(async move {
            let make = |_| Payload::json(&body);
            let mut tries = requests.tries("asample");
            // A second response would not be used.
            let found = requests.carry_out("api/v1/asample", &make, Repeat::Harmless, &mut tries).await;
            promise.keep(found.and_then(sampled));
        });
        Ok(id)
    }

    fn poll(&mut self) -> Result<Vec<Completion>, SampleError> {
        self.collect(None)
    }

    fn poll_until(&mut self, deadline: Instant) -> Result<Vec<Completion>, SampleError> {
        self.collect(Some(deadline))
    }

    fn take_failures(&mut self) -> Vec<(RequestId, String)> {
        std::mem::take(&mut self.failures)
    }

    fn end_session(&mut self, _session: u64) {}

    fn weights_version(&self) -> u64 {
        self.version
    }
}

impl TinkerSampler {
    fn collect(&mut self, deadline: Option<Instant>) -> Result<Vec<Completion>, SampleError> {
        while self.done.is_empty() && self.failures.is_empty() && !self.open.is_empty() {
            let Some(first) = self.responses.wait(deadline)? else { break };
            self.take(first)?;
        }
        while let Some(next) = self.responses.take()? {
            self.take(next)?;
        }
        let mut done = std::mem::take(&mut self.done);
        done.sort_by_key(|completion| completion.request);
        Ok(done)
    }

    fn body(&self, prompt: &[u32], params: &SamplingParams, room: usize, seed: u32) -> Value {
        let stop = match (&params.stop_tokens[..], &params.stop_strings[..]) {
            ([], []) => Value::Null,
            ([], strings) => json!(strings),
            (tokens, _) => json!(tokens),
        };
        let top_k = if params.top_k == 0 { json!(-1) } else { json!(params.top_k) };
        json!({
            "prompt": { "chunks": [{ "type": "encoded_text", "tokens": prompt }] },
            "num_samples": 1,
            "sampling_params": {
                "max_tokens": params.max_tokens.min(room), "temperature": params.temperature,
                "top_p": params.top_p, "top_k": top_k, "seed": seed, "stop": stop,
            },
            "sampling_session_id": self.session,
            "seq_id": self.client.next_sample(),
            "prompt_logprobs": false,
        })
    }
}

fn sampled(outcome: Outcome) -> Result<Sampled, TinkerError> {
    let found = match outcome {
        Outcome::Protobuf(bytes) => of_message(&bytes),
        Outcome::Json(value) => of_json(&value),
    };
    let sampled = found.map_err(|reason| TinkerError::Protocol { what: "asample", reason })?;
    let Sampled { tokens, logprobs, .. } = &sampled;
    if tokens.len() != logprobs.len() || tokens.is_empty() || logprobs.iter().any(|value| !value.is_finite())
    {
        let reason = format!(
            "{} tokens with {} log-probabilities; every token needs a finite one",
            tokens.len(),
            logprobs.len()
        );
        return Err(TinkerError::Protocol { what: "asample", reason });
    }
    Ok(sampled)
}

fn of_message(bytes: &[u8]) -> Result<Sampled, String> {
    let response = SampleResponse::decode(bytes).map_err(|error| error.to_string())?;
    let sequence = response.sequences.into_iter().next().ok_or("it has no response")?;
    Ok(Sampled {
        tokens: read_tokens(&sequence.tokens)?,
        logprobs: read_floats(&sequence.logprobs.unwrap_or_default())?,
        stopped: sequence.stop_reason == 0,
    })
}

fn of_json(value: &Value) -> Result<Sampled, String> {
    let sequence = value["sequences"].get(0).ok_or("it has no response")?;
    let list = |key: &str| sequence[key].as_array().ok_or_else(|| format!("it has no {key}"));
    let token = |value: &Value| {
        value
            .as_u64()
            .and_then(|id| u32::try_from(id).ok())
            .ok_or_else(|| format!("{value} is not a token id"))
    };
    Ok(Sampled {
        tokens: list("tokens")?.iter().map(token).collect::<Result<_, _>>()?,
        logprobs: list("logprobs")?.iter().map(|value| value.as_f64().unwrap_or(f64::NAN) as f32).collect(),
        stopped: sequence["stop_reason"] == "stop",
    })
}
