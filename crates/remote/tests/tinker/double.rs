//! A double of SkyRL's Tinker server, in the dialects of 0.4 (protobuf) and 0.3 (JSON).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use prost::Message as _;
use serde_json::{Value, json};
use turnwise_core::{Purpose, SampleRequest, Sampler as _, SamplingParams, Seed};
use turnwise_model::Parameters;
use turnwise_model::engine::{EngineConfig, NativeEngine};
use turnwise_remote::tinker::Dialect;
use turnwise_remote::tinker::proto::{ForwardBackwardRequest, SampleResponse, SampledSequence, token_bytes};

use crate::passes::{Model, OPTIMIZER, Saved};
use crate::serving::Server;
use crate::wire::{Pass, numbers, output_json, output_message, packed};

/// The only protobuf content type.
const PROTOBUF: &str = "application/x-protobuf";

/// Something that goes wrong with a request.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// It is refused with this status before it is looked at.
    Status(u16),
    /// It is carried out, and the answer has this status.
    StatusAfter(u16),
    /// Nothing comes for so long.
    Stall(Duration),
    /// The connection is closed before the request is looked at.
    Drop,
    /// It is carried out, and the connection is closed before the answer.
    DropAfter,
}

/// Traits of a double.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    pub(crate) dialect: Dialect,
    pub(crate) sequence_mean: bool,
    pub(crate) batch_mean: bool,
    /// Says norms of gradients as if it took no means.
    pub(crate) lies: bool,
    /// Models that it has room for.
    pub(crate) room: usize,
}

impl Traits {
    pub(crate) const SUM: Self =
        Self { dialect: Dialect::Protobuf, sequence_mean: false, batch_mean: false, lies: false, room: 4 };
    pub(crate) const JAX: Self = Self { sequence_mean: true, batch_mean: true, ..Self::SUM };
    pub(crate) const JSON: Self = Self { dialect: Dialect::Json, ..Self::JAX };
}

/// State of a future.
type Finished = Result<(Vec<u8>, bool), String>;

pub(crate) struct Service {
    traits: Traits,
    base: Arc<Parameters<f32>>,
    pub(crate) models: HashMap<String, Model>,
    saved: HashMap<String, Saved>,
    archives: HashMap<String, Vec<u8>>,
    sampling: HashMap<String, String>,
    futures: HashMap<String, Finished>,
    /// Faults by the end of a path, in the order in which they come.
    pub(crate) faults: Vec<(&'static str, Fault)>,
    /// Every request by the end of its path.
    pub(crate) log: Vec<String>,
    /// Keys that requests carried.
    pub(crate) keys: Vec<Option<String>>,
    pub(crate) session_gone: bool,
    /// Losses by name, as they came with a gradient.
    pub(crate) losses: Vec<String>,
    next: u64,
}

/// A running double.
pub(crate) struct Double {
    pub(crate) url: String,
    pub(crate) service: Arc<Mutex<Service>>,
    /// Ends when it is dropped.
    _server: Server,
}

type Shared = Arc<Mutex<Service>>;

fn lock(service: &Shared) -> MutexGuard<'_, Service> {
    service.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Double {
    pub(crate) fn start(base: Arc<Parameters<f32>>, traits: Traits) -> Self {
        let service = Arc::new(Mutex::new(Service {
            traits,
            base,
            models: HashMap::new(),
            saved: HashMap::new(),
            archives: HashMap::new(),
            sampling: HashMap::new(),
            futures: HashMap::new(),
            faults: Vec::new(),
            log: Vec::new(),
            keys: Vec::new(),
            session_gone: false,
            losses: Vec::new(),
            next: 0,
        }));
        let router = Router::new()
            .route("/api/v1/get_server_capabilities", get(capabilities))
            .route("/api/v1/forward_backward", post(forward_backward))
            .route("/api/v1/training_runs/{model}/checkpoints/{name}/archive", get(archive))
            .route("/api/v1/training_runs/{model}/checkpoints/{name}/download", get(download))
            .route("/api/v1/{call}", post(call))
            .layer(middleware::from_fn_with_state(Arc::clone(&service), misbehave))
            .with_state(Arc::clone(&service));
        let server = Server::start(router);
        Self { url: server.url.clone(), service, _server: server }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Service> {
        lock(&self.service)
    }

    /// Lets the next requests to a path fail so, one after the other.
    pub(crate) fn fail(&self, path: &'static str, faults: &[Fault]) {
        self.lock().faults.extend(faults.iter().map(|fault| (path, fault.clone())));
    }

    /// True if it says norms that are not its own.
    pub(crate) fn lies(&self) -> bool {
        self.lock().traits.lies
    }

    /// Requests to a path so far.
    pub(crate) fn count(&self, path: &str) -> usize {
        self.lock().log.iter().filter(|logged| *logged == path).count()
    }
}

/// Closes the connection without an answer.
fn close() -> ! {
    std::panic::resume_unwind(Box::new("the connection is closed"))
}

async fn misbehave(State(service): State<Shared>, request: Request, next: Next) -> Response {
    let name = request.uri().path().trim_start_matches("/api/v1/").to_owned();
    let fault = {
        let mut service = lock(&service);
        service.log.push(name.clone());
        let key = request.headers().get("x-api-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
        service.keys.push(key);
        let at = service.faults.iter().position(|(path, _)| *path == name);
        at.map(|at| service.faults.remove(at).1)
    };
    match fault {
        Some(Fault::Status(status)) => refuse(status, "as the test wants it"),
        Some(Fault::StatusAfter(status)) => {
            next.run(request).await;
            refuse(status, "as the test wants it")
        }
        Some(Fault::Stall(time)) => {
            tokio::time::sleep(time).await;
            next.run(request).await
        }
        Some(Fault::Drop) => close(),
        Some(Fault::DropAfter) => {
            next.run(request).await;
            close()
        }
        None => next.run(request).await,
    }
}

fn refuse(status: u16, detail: &str) -> Response {
    let status = StatusCode::from_u16(status).unwrap();
    (status, [(header::CONTENT_TYPE, "application/json")], json!({ "detail": detail }).to_string())
        .into_response()
}

fn answer(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

async fn capabilities() -> Response {
    answer(&json!({ "supported_models": [{ "model_name": "tiny" }] }))
}

async fn archive(Path((model, name)): Path<(String, String)>) -> Response {
    let to = format!("/api/v1/training_runs/{model}/checkpoints/{name}/download");
    (StatusCode::FOUND, [(header::LOCATION, to)]).into_response()
}

async fn download(State(service): State<Shared>, Path((model, name)): Path<(String, String)>) -> Response {
    match lock(&service).archives.get(&format!("tinker://{model}/{name}")) {
        Some(bytes) => bytes.clone().into_response(),
        None => refuse(404, "Checkpoint not found"),
    }
}

impl Service {
    fn name(&mut self, prefix: &str) -> String {
        self.next += 1;
        format!("{prefix}{}", self.next)
    }

    /// Remembers a result under a new name.
    fn future(&mut self, finished: Finished) -> String {
        let id = self.name("");
        self.futures.insert(id.clone(), finished);
        id
    }

    fn taken(&mut self, result: Result<Value, String>) -> Response {
        let id = self.future(result.map(|value| (value.to_string().into_bytes(), false)));
        answer(&json!({ "future_id": id, "status": "pending", "request_id": id }))
    }

    fn model(&mut self, id: &str) -> Result<&mut Model, Box<Response>> {
        self.models.get_mut(id).ok_or_else(|| Box::new(refuse(404, "Model not found")))
    }

    /// The response to a numbered request that came before.
    fn repeated(&self, model: &str, number: i64, body: &[u8]) -> Option<Response> {
        if self.traits.dialect == Dialect::Json || number == 0 {
            return None;
        }
        let (before, id) = self.models.get(model)?.numbered.get(&number)?;
        Some(if before == body {
            answer(&json!({ "future_id": id, "status": "pending", "request_id": id }))
        } else {
            refuse(409, "Training request sequence number was reused")
        })
    }

    fn remember(&mut self, model: &str, number: i64, body: &[u8]) {
        let id = self.next.to_string();
        if let Some(model) = self.models.get_mut(model) {
            model.numbered.insert(number, (body.to_vec(), id));
            model.requests += 1;
        }
    }

    /// A pass over sequences; its future's answer.
    fn pass(&mut self, pass: &Pass, body: &[u8]) -> Response {
        if let Some(response) = self.repeated(&pass.model, pass.number, body) {
            return response;
        }
        let (sequence_mean, dialect) = (self.traits.sequence_mean, self.traits.dialect);
        let model = match self.model(&pass.model) {
            Ok(model) => model,
            Err(response) => return *response,
        };
        let found = model.pass(&pass.examples, &pass.loss, &pass.config, sequence_mean, pass.forward_only);
        if !pass.forward_only {
            self.losses.push(pass.loss.clone());
        }
        let finished = found.map(|rows| match dialect {
            Dialect::Protobuf => (output_message(&rows), true),
            Dialect::Json => (output_json(&rows).to_string().into_bytes(), false),
        });
        let id = self.future(finished);
        self.remember(&pass.model, pass.number, body);
        answer(&json!({ "future_id": id, "status": "pending", "request_id": id }))
    }

    fn optim_step(&mut self, body: &Value, bytes: &[u8]) -> Response {
        let id = body["model_id"].as_str().unwrap_or_default().to_owned();
        let number = body["seq_id"].as_i64().unwrap_or(0);
        if let Some(response) = self.repeated(&id, number, bytes) {
            return response;
        }
        let adam = &body["adam_params"];
        let rate = adam["learning_rate"].as_f64().unwrap();
        let sent = ["beta1", "beta2", "eps", "weight_decay"].map(|key| adam[key].as_f64().unwrap());
        let expected = [OPTIMIZER.beta1, OPTIMIZER.beta2, OPTIMIZER.epsilon, OPTIMIZER.weight_decay];
        if rate > 0.0 && sent != expected {
            return refuse(422, &format!("AdamW's settings are {sent:?}"));
        }
        let Traits { batch_mean, lies, .. } = self.traits;
        let model = match self.model(&id) {
            Ok(model) => model,
            Err(response) => return *response,
        };
        let norm = model.step(rate, batch_mean).map(|norm| if lies { 1.0 } else { norm });
        let result = norm.map(|norm| json!({ "metrics": { "skyrl.ai/grad_norm": norm } }));
        let response = self.taken(result);
        self.remember(&id, number, bytes);
        response
    }

    fn save(&mut self, body: &Value, for_sampler: bool) -> Response {
        let id = body["model_id"].as_str().unwrap_or_default().to_owned();
        let model = match self.model(&id) {
            Ok(model) => model,
            Err(response) => return *response,
        };
        model.requests += 1;
        let saved = model.saved();
        let weights = model.learner.weights();
        if !for_sampler {
            let path = format!("tinker://{id}/weights/{}", body["path"].as_str().unwrap());
            if self.saved.insert(path.clone(), saved).is_some() {
                return refuse(409, "Checkpoint already exists");
            }
            return self.taken(Ok(json!({ "path": path, "type": "save_weights" })));
        }
        if let Some(name) = body["path"].as_str() {
            let path = format!("tinker://{id}/{name}");
            self.archives.insert(path.clone(), packed(weights.adapter.as_deref().unwrap()));
            return self.taken(Ok(json!({ "path": path, "sampling_session_id": null })));
        }
        let session = self.name("sampling_");
        self.sampling.insert(session.clone(), id);
        self.taken(Ok(json!({ "path": null, "sampling_session_id": session })))
    }

    fn load(&mut self, body: &Value) -> Response {
        let id = body["model_id"].as_str().unwrap_or_default().to_owned();
        let path = body["path"].as_str().unwrap_or_default();
        let Some(saved) = self.saved.get(path).cloned() else {
            return refuse(404, "Checkpoint not found");
        };
        let model = match self.model(&id) {
            Ok(model) => model,
            Err(response) => return *response,
        };
        if model.requests > 0 {
            return refuse(400, "LoadWeights is not permitted with seq_id 2");
        }
        model.requests += 1;
        model.load(&saved, body["optimizer"] == true);
        self.taken(Ok(json!({ "type": "load_weights" })))
    }

    fn sample(&mut self, body: &Value) -> Response {
        let session = body["sampling_session_id"].as_str().unwrap_or_default();
        let Some(id) = self.sampling.get(session).cloned() else {
            return refuse(404, "Sampling session not found");
        };
        let dialect = self.traits.dialect;
        let params = &body["sampling_params"];
        let stop = params["stop"].as_array().cloned().unwrap_or_default();
        let request = SampleRequest {
            session: 0,
            prompt: numbers(&body["prompt"]["chunks"][0]["tokens"]).iter().map(|&id| id as u32).collect(),
            params: SamplingParams {
                temperature: params["temperature"].as_f64().unwrap() as f32,
                max_tokens: params["max_tokens"].as_u64().unwrap() as usize,
                stop_tokens: stop.iter().filter_map(Value::as_u64).map(|id| id as u32).collect(),
                ..SamplingParams::default()
            },
            seed: Seed::derive(params["seed"].as_u64().unwrap(), Purpose::Rollout, &[]),
        };
        let model = match self.model(&id) {
            Ok(model) => model,
            Err(response) => return *response,
        };
        let sizes =
            EngineConfig { max_num_seqs: 1, max_model_len: request.prompt.len() + request.params.max_tokens };
        let weights = model.learner.engine_weights().unwrap();
        let mut engine = NativeEngine::with_shared(&weights, sizes, None).unwrap();
        engine.submit(request).unwrap();
        let found = engine.poll().unwrap().remove(0);
        let stopped = found.finish == turnwise_core::FinishReason::Stop;
        let finished = match dialect {
            Dialect::Protobuf => {
                let logprobs = found.logprobs.iter().flat_map(|value| value.to_le_bytes()).collect();
                let sequence = SampledSequence {
                    stop_reason: i32::from(!stopped),
                    tokens: token_bytes(&found.tokens),
                    logprobs: Some(logprobs),
                };
                (SampleResponse { sequences: vec![sequence] }.encode_to_vec(), true)
            }
            Dialect::Json => {
                let reason = if stopped { "stop" } else { "length" };
                let sequence =
                    json!({ "stop_reason": reason, "tokens": found.tokens, "logprobs": found.logprobs });
                (json!({ "sequences": [sequence] }).to_string().into_bytes(), false)
            }
        };
        let id = self.future(Ok(finished));
        answer(&json!({ "future_id": id, "status": "pending", "request_id": id }))
    }

    fn create_model(&mut self, body: &Value) -> Response {
        if self.session_gone {
            return refuse(404, "Session not found");
        }
        let id = self.name("model_");
        let result = if self.models.len() < self.traits.room {
            let lora = &body["lora_config"];
            let (rank, seed) = (lora["rank"].as_u64().unwrap() as usize, lora["seed"].as_u64().unwrap());
            self.models.insert(id.clone(), Model::new(&self.base, rank, seed));
            Ok(json!({ "model_id": id }))
        } else {
            Err(format!("Maximum number of LoRA adapters ({}) reached", self.traits.room + 1))
        };
        let request = self.future(result.map(|value: Value| (value.to_string().into_bytes(), false)));
        answer(&json!({ "model_id": id, "status": "created", "request_id": request }))
    }
}

async fn forward_backward(State(service): State<Shared>, headers: HeaderMap, body: Bytes) -> Response {
    let protobuf = headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == PROTOBUF);
    let mut service = lock(&service);
    match (service.traits.dialect, protobuf) {
        (Dialect::Protobuf, false) => refuse(415, "forward_backward requires a protobuf body"),
        (Dialect::Protobuf, true) => match ForwardBackwardRequest::decode(&*body) {
            Ok(request) => service.pass(&Pass::of_message(&request), &body),
            Err(error) => refuse(422, &error.to_string()),
        },
        (Dialect::Json, _) => match serde_json::from_slice::<Value>(&body) {
            Ok(value) if value["model_id"].is_string() => service.pass(&Pass::of_json(&value, false), &body),
            _ => refuse(422, "model_id: field required"),
        },
    }
}

async fn call(State(service): State<Shared>, Path(call): Path<String>, bytes: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&bytes).unwrap();
    let mut service = lock(&service);
    match call.as_str() {
        "create_session" => {
            service.session_gone = false;
            answer(&json!({ "type": "create_session", "error_message": null, "session_id": "session_1" }))
        }
        "session_heartbeat" if service.session_gone => refuse(404, "Session not found"),
        "session_heartbeat" => answer(&json!({ "type": "session_heartbeat" })),
        "create_model" => service.create_model(&body),
        "unload_model" => {
            service.models.remove(body["model_id"].as_str().unwrap());
            service.taken(Ok(json!({})))
        }
        "forward" if service.traits.dialect == Dialect::Json => {
            service.pass(&Pass::of_json(&body, true), &bytes)
        }
        "optim_step" => service.optim_step(&body, &bytes),
        "save_weights" => service.save(&body, false),
        "save_weights_for_sampler" => service.save(&body, true),
        "load_weights" => service.load(&body),
        "asample" => service.sample(&body),
        "retrieve_future" => match service.futures.get(body["request_id"].as_str().unwrap()) {
            None => refuse(404, "Future not found"),
            Some(Err(reason)) => refuse(400, reason),
            Some(Ok((bytes, protobuf))) => {
                let kind = if *protobuf { PROTOBUF } else { "application/json" };
                ([(header::CONTENT_TYPE, kind)], bytes.clone()).into_response()
            }
        },
        _ => refuse(404, "Not Found"),
    }
}
