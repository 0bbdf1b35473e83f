//! Servers with the timing of inference engines, in vLLM's dialect.
//!
//! A server runs `SLOTS` requests at a time; others wait. It reads `PREFILL` prompt tokens per
//! second, except those already read for the same session (a prefix cache). A token takes 15 ms
//! plus 0.04 ms per concurrent request, like batched decoding. Lengths are log-normal (median 32
//! tokens, sigma 0.8, so that one in a hundred is longer than 200), and one request in 500 takes
//! four times as long. Tokens are random, with the log-prob of a uniform choice. Only the request
//! of the start check is answered by this project's engine with the adapter.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use turnwise_core::{Purpose, Rng, SampleRequest, Sampler as _, SamplingParams, Seed};
use turnwise_model::engine::{EngineConfig, NativeEngine, SharedWeights};
use turnwise_model::{Compute, Device};
use turnwise_policy::Policy;

/// Concurrent requests per server.
pub(crate) const SLOTS: usize = 256;

/// Prompt tokens that a server reads per second.
const PREFILL: f64 = 20_000.0;

/// Times of all servers, from the first request of a rollout to the last response.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) requests: u64,
    /// Seconds from the first request of any server to the last response of any.
    pub(crate) seconds: f64,
    /// Seconds with at least one request in flight, summed over servers.
    pub(crate) busy: f64,
    /// Seconds summed over requests in flight.
    pub(crate) occupied: f64,
}

/// File for the report of the server process.
pub(crate) fn report_path(process: u32) -> PathBuf {
    std::env::temp_dir().join(format!("turnwise-scale-{process}.json"))
}

struct Server {
    slots: Semaphore,
    state: Mutex<Times>,
    adapters: Mutex<BTreeMap<String, Arc<Policy>>>,
}

#[derive(Default)]
struct Times {
    requests: u64,
    first: Option<Instant>,
    last: Option<Instant>,
    running: usize,
    changed: Option<Instant>,
    busy: f64,
    occupied: f64,
    /// Number of tokens read, by session.
    read: HashMap<String, usize>,
}

impl Times {
    /// Adds the time since the last change, then applies the change.
    fn change(&mut self, by: isize) {
        let now = Instant::now();
        if let Some(before) = self.changed.replace(now) {
            let seconds = (now - before).as_secs_f64();
            self.busy += if self.running > 0 { seconds } else { 0.0 };
            self.occupied += seconds * self.running as f64;
        }
        self.running = self.running.saturating_add_signed(by);
        self.first.get_or_insert(now);
        self.last = Some(now);
    }
}

impl Server {
    fn times(&self) -> MutexGuard<'_, Times> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn adapters(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Policy>>> {
        self.adapters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request in flight.
struct Running<'a>(&'a Server);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.times().change(-1);
    }
}

/// Serves until standard input ends, then writes the report.
pub(crate) fn serve(count: usize) -> Result<(), Box<dyn Error>> {
    let new = || Server {
        slots: Semaphore::new(SLOTS),
        state: Mutex::new(Times::default()),
        adapters: Mutex::new(BTreeMap::new()),
    };
    let servers: Vec<Arc<Server>> = (0..count).map(|_| Arc::new(new())).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listeners = servers.clone();
    let (ended, end) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        drop(ended);
    });
    runtime.block_on(async move {
        for server in listeners {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
            println!("http://{}", listener.local_addr()?);
            tokio::spawn(async move { axum::serve(listener, routes(server)).await });
        }
        let _ = end.await;
        Ok::<(), std::io::Error>(())
    })?;
    let all: Vec<MutexGuard<'_, Times>> = servers.iter().map(|server| server.times()).collect();
    let first = all.iter().filter_map(|times| times.first).min();
    let last = all.iter().filter_map(|times| times.last).max();
    let report = Report {
        requests: all.iter().map(|times| times.requests).sum(),
        seconds: first.zip(last).map_or(0.0, |(first, last)| (last - first).as_secs_f64()),
        busy: all.iter().map(|times| times.busy).sum(),
        occupied: all.iter().map(|times| times.occupied).sum(),
    };
    Ok(std::fs::write(report_path(std::process::id()), serde_json::to_vec(&report)?)?)
}

fn routes(server: Arc<Server>) -> Router {
    Router::new()
        .route("/health", get(|| async { StatusCode::OK }))
        .route(
            "/v1/models",
            get(|| async { Json(json!({ "data": [{ "id": "base", "max_model_len": 1 << 20 }] })) }),
        )
        .route("/inference/v1/generate", post(generate))
        .route("/v1/load_lora_adapter", post(load))
        .route("/v1/unload_lora_adapter", post(unload))
        .with_state(server)
}

async fn load(State(server): State<Arc<Server>>, Json(body): Json<Value>) -> Response {
    let field = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
    match Policy::load(&PathBuf::from(field("lora_path"))) {
        Ok(policy) => {
            server.adapters().insert(field("lora_name"), Arc::new(policy));
            "Success: LoRA adapter added successfully.".into_response()
        }
        Err(error) => (StatusCode::NOT_FOUND, error.to_string()).into_response(),
    }
}

async fn unload(State(server): State<Arc<Server>>, Json(body): Json<Value>) -> Response {
    server.adapters().remove(body["lora_name"].as_str().unwrap_or_default());
    "Success: LoRA adapter removed successfully.".into_response()
}

async fn generate(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    let prompt: Vec<u32> = serde_json::from_value(body["token_ids"].clone()).unwrap_or_default();
    let name = body["model"].as_str().unwrap_or_default();
    let Some(policy) = server.adapters().get(name).cloned() else {
        let message = json!({ "error": { "message": format!("The model `{name}` does not exist.") } });
        return (StatusCode::NOT_FOUND, Json(message)).into_response();
    };
    let fields = &body["sampling_params"];
    let seed = Seed::derive(fields["seed"].as_u64().unwrap_or(0), Purpose::Rollout, &[]);
    let longest = fields["max_tokens"].as_u64().unwrap_or(16) as usize;
    if body["request_id"].as_str().is_some_and(|id| id.starts_with("turnwise-check")) {
        let temperature = fields["temperature"].as_f64().unwrap_or(1.0) as f32;
        let params = SamplingParams { temperature, max_tokens: longest, ..SamplingParams::default() };
        return match check(&policy, SampleRequest { session: 0, prompt, params, seed }) {
            Ok((tokens, logprobs)) => answer(&tokens, &logprobs, "length"),
            Err(reason) => (StatusCode::INTERNAL_SERVER_ERROR, reason).into_response(),
        };
    }
    let mut draws = seed.rng();
    let vocabulary = policy.weights.config().vocab_size;
    let length = length(&mut draws);
    let tokens: Vec<u32> = (0..length.min(longest)).map(|_| draws.below(vocabulary) as u32).collect();
    let logprobs = vec![-(vocabulary as f32).ln(); tokens.len()];
    let slow = if draws.below(500) == 0 { 4.0 } else { 1.0 };
    let session =
        headers.get("x-session-id").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let Ok(_slot) = server.slots.acquire().await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let running = Running(&server);
    let seconds = {
        let mut times = server.times();
        times.change(1);
        times.requests += 1;
        let cached = times.read.insert(session, prompt.len() + tokens.len()).unwrap_or(0).min(prompt.len());
        let each = 0.015 + 0.000_04 * times.running as f64;
        (prompt.len() - cached) as f64 / PREFILL + slow * each * tokens.len() as f64
    };
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    drop(running);
    answer(&tokens, &logprobs, if length > longest { "length" } else { "stop" })
}

/// Draws a log-normal length, at least 1.
fn length(draws: &mut Rng) -> usize {
    (32.0 * (0.8 * draws.normal()).exp()).round().max(1.0) as usize
}

fn answer(tokens: &[u32], logprobs: &[f32], reason: &str) -> Response {
    let content: Vec<Value> = tokens
        .iter()
        .zip(logprobs)
        .map(|(token, logprob)| json!({ "token_id": token, "logprob": logprob }))
        .collect();
    let choice = json!({ "index": 0, "finish_reason": reason, "token_ids": tokens, "logprobs": { "content": content } });
    Json(json!({ "request_id": "generate-1", "choices": [choice] })).into_response()
}

/// Returns tokens sampled by the adapter, with their log-probs.
fn check(policy: &Policy, request: SampleRequest) -> Result<(Vec<u32>, Vec<f32>), String> {
    let shared = SharedWeights::of(&policy.weights, 0, Device::Cpu, Compute::F32)
        .map_err(|error| error.to_string())?;
    let sizes =
        EngineConfig { max_num_seqs: 1, max_model_len: request.prompt.len() + request.params.max_tokens };
    let mut engine = NativeEngine::with_shared(&shared, sizes, None).map_err(|error| error.to_string())?;
    engine.submit(request).map_err(|error| error.to_string())?;
    let found = engine.poll().map_err(|error| error.to_string())?.pop().ok_or("no answer")?;
    Ok((found.tokens, found.logprobs))
}
