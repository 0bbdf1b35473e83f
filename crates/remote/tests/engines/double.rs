//! A server that speaks both dialects, with this project's own engine behind it, so that its numbers can be checked. What
//! real servers do wrong, or do where a client does not expect it, are switches.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use turnwise_core::{
    Completion, FinishReason, Purpose, SampleRequest, Sampler as _, SamplingParams, Seed, TokenSequence,
    TurnSpan,
};
use turnwise_model::engine::{EngineConfig, NativeEngine, SharedWeights};
use turnwise_model::{Compute, Device, LearnerConfig, NativeLearner, Weights};
use turnwise_policy::Policy;
use turnwise_text::Tokenizer;

use crate::serving::Server;

/// A way in which a request goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection breaks in the middle of the answer.
    Dies,
    /// No answer ever.
    Stalls,
    /// 429 with `Retry-After`.
    Busy,
    /// 503.
    Unavailable,
    /// 500.
    Fails,
    /// The answer ends in the middle, although its length says that it does not.
    Truncated,
    /// The adapter is gone; it can be loaded again.
    Evicted,
    /// The server gives up after one token, which it hands over.
    Aborts,
    /// A log-probability that stands for what is not a number.
    NotANumber,
}

/// Switches, all off.
#[derive(Default)]
pub(crate) struct Switches {
    /// Faults of the next requests, one each; the last ones come first.
    pub(crate) faults: Mutex<Vec<Fault>>,
    /// Log-probabilities before the temperature.
    pub(crate) raw: AtomicBool,
    /// Draws that do not come from the request's seed.
    pub(crate) ignores_seeds: AtomicBool,
    /// Serves another model than it says: adapters count twice.
    pub(crate) another_model: AtomicBool,
    /// Knows no `/inference/v1/generate`.
    pub(crate) no_scale_out: AtomicBool,
    /// Cannot load adapters.
    pub(crate) no_adapters: AtomicBool,
    /// `max_model_len`; 0 for a long one.
    pub(crate) context: AtomicUsize,
}

/// One answer that was sent whole.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) session: String,
    pub(crate) request: Value,
    pub(crate) tokens: Vec<u32>,
}

struct Inner {
    switches: Switches,
    adapters: Mutex<BTreeMap<String, (Weights, Arc<Tokenizer>)>>,
    loads: Mutex<Vec<String>>,
    served: Mutex<Vec<Served>>,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
}

/// A running server.
pub(crate) struct Double {
    inner: Arc<Inner>,
    pub(crate) server: Server,
}

impl Double {
    pub(crate) fn start() -> Self {
        let inner = Arc::new(Inner {
            switches: Switches::default(),
            adapters: Mutex::default(),
            loads: Mutex::default(),
            served: Mutex::default(),
            at_once: AtomicUsize::new(0),
            most_at_once: AtomicUsize::new(0),
        });
        let server = Server::start(routes(Arc::clone(&inner)));
        Self { inner, server }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url.clone()
    }

    pub(crate) fn switches(&self) -> &Switches {
        &self.inner.switches
    }

    /// Lets the next requests go wrong, in this order.
    pub(crate) fn go_wrong(&self, faults: &[Fault]) {
        self.inner.switches.faults.lock().unwrap().extend(faults.iter().rev());
    }

    /// Names of the adapters that it has.
    pub(crate) fn adapters(&self) -> Vec<String> {
        self.inner.adapters.lock().unwrap().keys().cloned().collect()
    }

    /// Names in the order in which they were loaded.
    pub(crate) fn loads(&self) -> Vec<String> {
        self.inner.loads.lock().unwrap().clone()
    }

    pub(crate) fn served(&self) -> Vec<Served> {
        self.inner.served.lock().unwrap().clone()
    }

    /// Most requests that it worked on at once.
    pub(crate) fn most_at_once(&self) -> usize {
        self.inner.most_at_once.load(Ordering::Relaxed)
    }
}

fn routes(state: Arc<Inner>) -> Router {
    Router::new()
        .route("/health", get(|| async { StatusCode::OK }))
        .route("/v1/models", get(models))
        .route("/inference/v1/generate", post(vllm))
        .route("/generate", post(sglang))
        .route("/v1/load_lora_adapter", post(load))
        .route("/load_lora_adapter", post(load))
        .route("/v1/unload_lora_adapter", post(unload))
        .route("/unload_lora_adapter", post(unload))
        .with_state(state)
}

fn error(status: u16, message: &str) -> Response {
    let body = json!({ "error": { "message": message, "type": "Error", "code": status } });
    (StatusCode::from_u16(status).unwrap(), Json(body)).into_response()
}

async fn models(State(state): State<Arc<Inner>>) -> Json<Value> {
    let context = match state.switches.context.load(Ordering::Relaxed) {
        0 => 1 << 20,
        context => context,
    };
    Json(json!({ "object": "list", "data": [{ "id": "base", "max_model_len": context }] }))
}

async fn load(State(state): State<Arc<Inner>>, Json(body): Json<Value>) -> Response {
    if state.switches.no_adapters.load(Ordering::Relaxed) {
        return error(404, "Not Found");
    }
    let name = body["lora_name"].as_str().unwrap().to_owned();
    if state.adapters.lock().unwrap().contains_key(&name) {
        return error(400, &format!("The lora adapter '{name}' has already been loaded."));
    }
    let Ok(policy) = Policy::load(&PathBuf::from(body["lora_path"].as_str().unwrap())) else {
        return error(404, &format!("Loading lora {name} failed: No adapter found"));
    };
    // A policy's own tokenizer is not among an adapter's files: it is its base's.
    let tokenizer = policy.tokenizer;
    state.loads.lock().unwrap().push(name.clone());
    state.adapters.lock().unwrap().insert(name.clone(), (policy.weights, tokenizer));
    format!("Success: LoRA adapter '{name}' added successfully.").into_response()
}

async fn unload(State(state): State<Arc<Inner>>, Json(body): Json<Value>) -> Response {
    let name = body["lora_name"].as_str().unwrap();
    match state.adapters.lock().unwrap().remove(name) {
        Some(_) => format!("Success: LoRA adapter '{name}' removed successfully.").into_response(),
        None => error(404, &format!("The lora adapter '{name}' cannot be found.")),
    }
}

/// A request in either dialect.
struct Asked {
    prompt: Vec<u32>,
    params: SamplingParams,
    seed: u64,
    adapter: String,
}

fn numbers(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|token| token.as_u64().unwrap() as u32).collect()
}

fn asked(body: &Value, [prompt, adapter, longest, seed]: [&str; 4]) -> Asked {
    let fields = &body["sampling_params"];
    let number = |key: &str| fields[key].as_f64().unwrap_or_else(|| panic!("{key} is not sent"));
    // What a server would fill in from the model's files, or forbid, must not be left to it.
    for (key, neutral) in
        [("min_p", 0.0), ("presence_penalty", 0.0), ("frequency_penalty", 0.0), ("repetition_penalty", 1.0)]
    {
        assert_eq!(number(key), neutral, "{key}");
    }
    assert_eq!((fields["ignore_eos"].as_bool(), body["stream"].as_bool()), (Some(true), Some(false)));
    let top_k = number("top_k");
    assert_ne!(top_k, 0.0, "0 is not all everywhere");
    let strings = fields["stop"].as_array().unwrap().iter().map(|stop| stop.as_str().unwrap().to_owned());
    Asked {
        prompt: numbers(&body[prompt]),
        adapter: body[adapter].as_str().unwrap().to_owned(),
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

async fn vllm(
    State(state): State<Arc<Inner>>,
    headers: axum::http::HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    if state.switches.no_scale_out.load(Ordering::Relaxed) {
        return error(403, "Scale-out endpoints are disabled");
    }
    let session = headers["x-session-id"].to_str().unwrap().to_owned();
    let of_vllm = |found: &Completion| {
        let entry =
            |(token, logprob): (&u32, &f32)| json!({ "token_id": token, "logprob": logprob, "rank": 1 });
        let content: Vec<Value> = found.tokens.iter().zip(&found.logprobs).map(entry).collect();
        json!({ "request_id": "generate-tokens-1", "prompt_logprobs": null, "choices": [{
            "index": 0, "finish_reason": reason(found), "token_ids": found.tokens, "logprobs": { "content": content },
        }] })
    };
    let asked = asked(&body, ["token_ids", "model", "max_tokens", "seed"]);
    let unknown = format!("The model `{}` does not exist.", asked.adapter);
    respond(&state, session, body, asked, (404, unknown), of_vllm).await
}

async fn sglang(
    State(state): State<Arc<Inner>>,
    headers: axum::http::HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    let session = headers["x-smg-routing-key"].to_str().unwrap().to_owned();
    let of_sglang = |found: &Completion| {
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
        } })
    };
    let asked = asked(&body, ["input_ids", "lora_path", "max_new_tokens", "sampling_seed"]);
    let unknown = format!("The following requested LoRA adapters are not loaded: {{'{}'}}", asked.adapter);
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

/// Counts a request in and out.
struct AtOnce<'a>(&'a Inner);

impl<'a> AtOnce<'a> {
    fn enter(inner: &'a Inner) -> Self {
        let now = inner.at_once.fetch_add(1, Ordering::Relaxed) + 1;
        inner.most_at_once.fetch_max(now, Ordering::Relaxed);
        Self(inner)
    }
}

impl Drop for AtOnce<'_> {
    fn drop(&mut self) {
        self.0.at_once.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn respond(
    state: &Inner,
    session: String,
    request: Value,
    asked: Asked,
    (status, unknown): (u16, String),
    written: impl Fn(&Completion) -> Value,
) -> Response {
    let _here = AtOnce::enter(state);
    let fault = state.switches.faults.lock().unwrap().pop();
    match fault {
        Some(Fault::Busy) => {
            return (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "0")], "slow down").into_response();
        }
        Some(Fault::Unavailable) => return error(503, "the engine is starting"),
        Some(Fault::Fails) => return error(500, "EngineCore encountered an issue"),
        Some(Fault::Stalls) => std::future::pending().await,
        Some(Fault::Evicted) => state.adapters.lock().unwrap().clear(),
        _ => {}
    }
    let found = state.adapters.lock().unwrap().get(&asked.adapter).cloned();
    let Some((weights, tokenizer)) = found else {
        // What was to go wrong with an answer goes wrong with the next one.
        let later = fault.filter(|fault| *fault != Fault::Evicted);
        state.switches.faults.lock().unwrap().extend(later);
        return error(status, &unknown);
    };
    let mut found = sample(state, weights, tokenizer, asked);
    match fault {
        Some(Fault::Aborts) => {
            found.tokens.truncate(1);
            found.logprobs.truncate(1);
            found.finish = FinishReason::Context;
        }
        Some(Fault::NotANumber) => found.logprobs[0] = -9999.0,
        _ => {}
    }
    let body = written(&found).to_string();
    let half = Bytes::copy_from_slice(&body.as_bytes()[..body.len() / 2]);
    match fault {
        Some(Fault::Dies) => {
            let parts = [Ok(half), Err(std::io::Error::other("gone"))];
            return Body::from_stream(futures_util::stream::iter(parts)).into_response();
        }
        Some(Fault::Truncated) => return half.into_response(),
        Some(Fault::NotANumber) => return body.into_response(),
        _ => {}
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    state.served.lock().unwrap().push(Served { session, request, tokens: found.tokens });
    body.into_response()
}

fn sample(state: &Inner, weights: Weights, tokenizer: Arc<Tokenizer>, asked: Asked) -> Completion {
    let weights = if state.switches.another_model.load(Ordering::Relaxed) {
        let mut other = (*weights.base).clone();
        other.data.iter_mut().step_by(3).for_each(|weight| *weight *= -1.0);
        Weights { base: Arc::new(other), ..weights }
    } else {
        weights
    };
    let seed = if state.switches.ignores_seeds.load(Ordering::Relaxed) {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos().into()
    } else {
        asked.seed
    };
    let max_context = weights.config().max_position_embeddings;
    let shared = SharedWeights::of(&weights, 0, Device::Cpu, Compute::F32).unwrap();
    let sizes = EngineConfig { slots: 1, max_context };
    let mut engine = NativeEngine::with_shared(&shared, sizes, Some(tokenizer)).unwrap();
    let seed = Seed::derive(seed, Purpose::Rollout, &[]);
    let (prompt, params) = (asked.prompt.clone(), asked.params);
    engine.submit(SampleRequest { session: 0, prompt, params, seed }).unwrap();
    let mut found = engine.poll().unwrap().remove(0);
    if state.switches.raw.load(Ordering::Relaxed) {
        let mut learner = NativeLearner::new(weights, LearnerConfig::default()).unwrap();
        let tokens: Vec<u32> = asked.prompt.iter().chain(&found.tokens).copied().collect();
        let spans = vec![TurnSpan { turn: 0, start: asked.prompt.len(), end: tokens.len() }];
        found.logprobs = learner.score(&[TokenSequence { tokens, spans }], 1.0).unwrap().remove(0).logprobs;
    }
    found
}
