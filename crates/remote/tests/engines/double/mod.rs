//! A server for all dialects with this project's engine, so that its responses can be checked.
//! Switches imitate faults and unexpected behaviour of real servers.
//!
//! | file | subject |
//! |---|---|
//! | `mod.rs` | the server and its switches, sampling, faults |
//! | `pictures.rs` | pictures beside tokens |
//! | `routes.rs` | requests and responses of the three routes |
//! | `weights.rs` | adapters, and replaced weights |

mod pictures;
mod routes;
mod weights;

use std::collections::BTreeMap;
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
use turnwise_model::vision::Image;
use turnwise_model::{Compute, Device, LearnerConfig, NativeLearner, Weights};
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
    /// The server gives up before the first token.
    AbortsAtOnce,
    /// A log-probability that stands for what is not a number.
    NotANumber,
    /// The server was started anew: with the weights of its start, and without adapters.
    Restarted,
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
    /// Answers every request to sample with 503.
    pub(crate) unavailable: AtomicBool,
    /// Answers every request to load an adapter with 503.
    pub(crate) loads_nothing: AtomicBool,
    /// Cannot load adapters.
    pub(crate) no_adapters: AtomicBool,
    /// `max_model_len`; 0 for a long one.
    pub(crate) context: AtomicUsize,
    /// Knows no `return_token_ids`, as vLLM before 0.10.2.
    pub(crate) no_token_ids: AtomicBool,
    /// Has no routes to replace weights.
    pub(crate) no_dev_mode: AtomicBool,
    /// Does not say by which weights it sampled.
    pub(crate) no_weight_versions: AtomicBool,
    /// Says that it has loaded weights, and goes on with those before.
    pub(crate) keeps_weights: AtomicBool,
    /// Loads all weights but the embeddings, and the output layer that is tied to them.
    pub(crate) keeps_embeddings: AtomicBool,
    /// Goes on from keys and values of a prompt that it has computed before, by whatever weights, until its cache is emptied; those
    /// of another salt are others.
    pub(crate) keeps_prefixes: AtomicBool,
    /// Does not empty its cache, says that it has, and knows no salts.
    pub(crate) never_forgets: AtomicBool,
    /// Has no `/metrics`.
    pub(crate) no_metrics: AtomicBool,
    /// Requests that it says wait in its queue.
    pub(crate) waiting: AtomicUsize,
    /// Knows no `content_parts`, as vLLM before 0.32, and overlooks them.
    pub(crate) knows_no_pictures: AtomicBool,
    /// Resizes pictures as another image processor would.
    pub(crate) other_sizes: AtomicBool,
    /// Sees black pictures.
    pub(crate) blind: AtomicBool,
    /// Milliseconds that an answer takes at least.
    pub(crate) slow_ms: AtomicUsize,
}

/// One answer that was sent whole.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) session: String,
    pub(crate) request: Value,
    pub(crate) tokens: Vec<u32>,
    /// Requests that were under way when it came, itself included.
    pub(crate) at_once: usize,
}

/// Weights to sample from.
type Model = (Weights, Arc<Tokenizer>);

/// The server's own weights, in the place of which others are loaded.
#[derive(Default)]
struct Own {
    /// Those of its start: the first that it was given.
    first: Option<Model>,
    now: Option<Model>,
    version: String,
    paused: bool,
}

struct Inner {
    switches: Switches,
    adapters: Mutex<BTreeMap<String, Model>>,
    own: Mutex<Own>,
    /// Weights that a prompt was computed by first, by salt and prompt.
    prefixes: Mutex<BTreeMap<(String, Vec<u32>), Model>>,
    loads: Mutex<Vec<String>>,
    /// Most folders beside one another when weights were loaded.
    folders: AtomicUsize,
    readings: AtomicUsize,
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
            own: Mutex::default(),
            prefixes: Mutex::default(),
            loads: Mutex::default(),
            folders: AtomicUsize::new(0),
            readings: AtomicUsize::new(0),
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

    /// Makes noise the weights of the server's start, so that nothing that a restarted server samples can pass for trained.
    pub(crate) fn own_start(&self) {
        let mut own = self.inner.own.lock().unwrap();
        if let Some((weights, _)) = &mut own.first {
            let mut noise = (*weights.base).clone();
            noise.data.iter_mut().step_by(3).for_each(|weight| *weight *= -1.0);
            weights.base = Arc::new(noise);
        }
    }

    /// Names in the order in which they were loaded.
    pub(crate) fn loads(&self) -> Vec<String> {
        self.inner.loads.lock().unwrap().clone()
    }

    pub(crate) fn served(&self) -> Vec<Served> {
        self.inner.served.lock().unwrap().clone()
    }

    /// Most folders that lay beside one another when weights were loaded.
    pub(crate) fn folders(&self) -> usize {
        self.inner.folders.load(Ordering::Relaxed)
    }

    /// Times that its load was read.
    pub(crate) fn readings(&self) -> usize {
        self.inner.readings.load(Ordering::Relaxed)
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
        .route("/metrics", get(metrics))
        .route("/inference/v1/generate", post(routes::generate))
        .route("/v1/completions", post(routes::completions))
        .route("/generate", post(routes::sglang))
        .route("/v1/load_lora_adapter", post(weights::load))
        .route("/load_lora_adapter", post(weights::load))
        .route("/v1/unload_lora_adapter", post(weights::unload))
        .route("/unload_lora_adapter", post(weights::unload))
        .route("/pause", post(weights::pause))
        .route("/resume", post(weights::resume))
        .route("/collective_rpc", post(weights::collective_rpc))
        .route("/reset_prefix_cache", post(weights::reset_prefix_cache))
        .route("/update_weight_version", post(weights::update_weight_version))
        .route("/weight_info", get(weights::weight_info))
        .route("/update_weights_from_disk", post(weights::update_weights_from_disk))
        .route("/flush_cache", post(weights::flush_cache))
        .with_state(state)
}

fn error(status: u16, message: &str) -> Response {
    let body = json!({ "error": { "message": message, "type": "Error", "code": status } });
    (StatusCode::from_u16(status).unwrap(), Json(body)).into_response()
}

/// A request in any dialect.
struct Asked {
    prompt: Vec<u32>,
    /// Pictures for the image tokens of the prompt.
    pictures: Vec<Image>,
    params: SamplingParams,
    seed: u64,
    /// Name of the adapter; none for the server's own weights.
    adapter: Option<String>,
}

async fn models(State(state): State<Arc<Inner>>) -> Json<Value> {
    let context = match state.switches.context.load(Ordering::Relaxed) {
        0 => 1 << 20,
        context => context,
    };
    Json(json!({ "object": "list", "data": [{ "id": "base", "max_model_len": context }] }))
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

/// The load in the words of both programs.
async fn metrics(State(state): State<Arc<Inner>>) -> Response {
    if state.switches.no_metrics.load(Ordering::Relaxed) {
        return error(404, "Not Found");
    }
    state.readings.fetch_add(1, Ordering::Relaxed);
    let (running, waiting) = (&state.at_once, &state.switches.waiting);
    let (running, waiting) = (running.load(Ordering::Relaxed), waiting.load(Ordering::Relaxed));
    format!(
        "# TYPE vllm:num_requests_running gauge\n\
         vllm:num_requests_running{{engine=\"0\"}} {running}.0\n\
         vllm:num_requests_waiting{{engine=\"0\"}} {waiting}.0\n\
         vllm:kv_cache_usage_perc{{engine=\"0\"}} 0.25\n\
         sglang:num_running_reqs{{engine_type=\"unified\"}} {running}.0\n\
         sglang:num_queue_reqs{{engine_type=\"unified\"}} {waiting}.0\n"
    )
    .into_response()
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
    written: impl Fn(&Completion, &str) -> Value,
) -> Response {
    let _here = AtOnce::enter(state);
    let at_once = state.at_once.load(Ordering::Relaxed);
    if state.switches.unavailable.load(Ordering::Relaxed) {
        return error(503, "the engine is starting");
    }
    let fault = state.switches.faults.lock().unwrap().pop();
    match fault {
        Some(Fault::Busy) => {
            return (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "0")], "slow down").into_response();
        }
        Some(Fault::Unavailable) => return error(503, "the engine is starting"),
        Some(Fault::Fails) => return error(500, "EngineCore encountered an issue"),
        Some(Fault::Stalls) => std::future::pending().await,
        Some(Fault::Evicted) => state.adapters.lock().unwrap().clear(),
        Some(Fault::Restarted) => weights::restart(state),
        _ => {}
    }
    let slow = state.switches.slow_ms.load(Ordering::Relaxed) as u64;
    tokio::time::sleep(Duration::from_millis(slow)).await;
    let (found, version) = if let Some(adapter) = &asked.adapter {
        (state.adapters.lock().unwrap().get(adapter).cloned(), String::new())
    } else {
        // What comes to a server that was stopped waits.
        while state.own.lock().unwrap().paused {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let own = state.own.lock().unwrap();
        (own.now.clone().map(|model| weights::cached(state, &request, &asked, model)), own.version.clone())
    };
    let Some((weights, tokenizer)) = found else {
        // What was to go wrong with an answer goes wrong with the next one.
        let later = fault.filter(|fault| !matches!(fault, Fault::Evicted | Fault::Restarted));
        state.switches.faults.lock().unwrap().extend(later);
        return error(status, &unknown);
    };
    let mut asked = asked;
    let read = pictures::insert(state, weights.config(), &mut asked);
    let mut found = sample(state, weights, tokenizer, asked);
    match fault {
        Some(Fault::Aborts | Fault::AbortsAtOnce) => {
            let left = usize::from(fault == Some(Fault::Aborts));
            found.tokens.truncate(left);
            found.logprobs.truncate(left);
            found.finish = FinishReason::Context;
        }
        Some(Fault::NotANumber) => found.logprobs[0] = -9999.0,
        _ => {}
    }
    let mut body = written(&found, &version);
    if let Some(read) = read.filter(|_| request["return_token_ids"] == true) {
        body["prompt_token_ids"] = json!(read);
    }
    let body = body.to_string();
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
    state.served.lock().unwrap().push(Served { session, request, tokens: found.tokens, at_once });
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
    let max_model_len = weights.config().max_position_embeddings;
    let shared = SharedWeights::of(&weights, 0, Device::Cpu, Compute::F32).unwrap();
    let sizes = EngineConfig { max_num_seqs: 1, max_model_len };
    let mut engine = NativeEngine::with_shared(&shared, sizes, Some(tokenizer)).unwrap();
    let seed = Seed::derive(seed, Purpose::Rollout, &[]);
    let (prompt, params) = (asked.prompt.clone(), asked.params);
    engine.submit(SampleRequest { session: 0, prompt, params, seed }).unwrap();
    let mut found = engine.poll().unwrap().remove(0);
    if state.switches.raw.load(Ordering::Relaxed) {
        let mut learner = NativeLearner::new(weights, LearnerConfig::default()).unwrap();
        let tokens: Vec<u32> = asked.prompt.iter().chain(&found.tokens).copied().collect();
        let spans = vec![TurnSpan { turn: 0, start: asked.prompt.len(), end: tokens.len() }];
        found.logprobs = learner.score(&[&TokenSequence { tokens, spans }], 1.0).unwrap().remove(0).logprobs;
    }
    found
}
