//! A blocking session with a training service.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::error::{TinkerError, shortened};
use super::example::Example;
use super::passes::{NamedLoss, chunked, encode, logprobs_of};
use super::requests::{Outcome, Repeat, Requests, Timing};
use super::transport::{Payload, Transport};
use crate::thread::{RequestThread, ThreadEnded};

/// Encoding of passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Protobuf (SkyRL 0.4, Tinker); requests are numbered, so they can be retried without being
    /// applied twice.
    Protobuf,
    /// JSON (SkyRL 0.3); passes and steps are not retried if it is unknown whether the service
    /// applied them.
    Json,
}

/// Session options.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Service address.
    pub url: String,
    /// Name of the environment variable that contains the API key; empty if the service needs no
    /// key.
    pub api_key_env: String,
    /// Timeouts and polling intervals.
    pub timing: Timing,
}

/// AdamW settings of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamParams {
    /// Learning rate.
    pub learning_rate: f64,
    /// First moment decay (beta 1).
    pub beta1: f64,
    /// Second moment decay (beta 2).
    pub beta2: f64,
    /// Epsilon, added to the second moment's square root.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Maximum gradient norm; 0 disables clipping.
    pub grad_clip_norm: f64,
}

impl AdamParams {
    /// Returns settings that leave the weights unchanged.
    pub fn still() -> Self {
        Self {
            learning_rate: 0.0,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay: 0.0,
            grad_clip_norm: 0.0,
        }
    }
}

/// A LoRA adapter that a session has created on the service.
#[derive(Debug)]
pub struct RemoteModel {
    pub(super) id: String,
    next: AtomicI32,
}

impl RemoteModel {
    /// Returns the model's id on the service.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn number(&self) -> i32 {
        self.next.fetch_add(1, Ordering::SeqCst)
    }
}

/// A session with a training service, which frees the session's models within minutes once the
/// client is dropped.
pub struct Client {
    requests: Arc<Requests>,
    thread: RequestThread,
    session: String,
    dialect: Dialect,
    models: Vec<String>,
    counter: AtomicI64,
    next_model: AtomicI64,
    samples: AtomicI64,
    label: String,
}

impl Client {
    /// Opens a session, detects the dialect and starts the heartbeat.
    ///
    /// # Errors
    /// Fails if the address or key is invalid, or if the service is unusable.
    pub fn connect(options: &ClientOptions) -> Result<Self, TinkerError> {
        let transport = Transport::new(&options.url, &options.api_key_env)?;
        let requests = Arc::new(Requests::new(transport, options.timing));
        let thread = RequestThread::start().map_err(|error| TinkerError::no_thread(&error))?;
        let asker = Arc::clone(&requests);
        let (session, dialect, models) = wait(&thread, async move {
            let session = asker.open_session().await?;
            let dialect = asker.probe().await?;
            Ok((session, dialect, asker.models().await?))
        })?;
        thread.handle().spawn(Arc::clone(&requests).beat(session.clone()));
        let label = session.chars().filter(char::is_ascii_alphanumeric).collect();
        let (counter, next_model, samples) = (AtomicI64::new(0), AtomicI64::new(0), AtomicI64::new(1));
        Ok(Self { requests, thread, session, dialect, models, counter, next_model, samples, label })
    }

    /// Returns the encoding of passes.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Returns the names of the offered models.
    pub fn models(&self) -> &[String] {
        &self.models
    }

    fn ask(
        &self,
        what: &'static str,
        path: &'static str,
        make: impl Fn(u32) -> Payload + Send + Sync + 'static,
        repeat: Repeat,
    ) -> Result<Outcome, TinkerError> {
        let requests = Arc::clone(&self.requests);
        wait(
            &self.thread,
            async move { requests.carry_out(path, &make, repeat, &mut requests.tries(what)).await },
        )
    }

    fn ask_json(
        &self,
        what: &'static str,
        path: &'static str,
        body: &Value,
        repeat: Repeat,
    ) -> Result<Value, TinkerError> {
        let payload = Payload::json(body);
        json_result(what, self.ask(what, path, move |_| payload.clone(), repeat)?)
    }

    /// Creates a LoRA adapter.
    ///
    /// # Errors
    /// Fails if the service rejects the request, for example because it is full.
    pub fn create_model(&self, base_model: &str, rank: usize, seed: u32) -> Result<RemoteModel, TinkerError> {
        let what = "create_model";
        let lora = json!({ "rank": rank, "seed": seed & 0x7fff_ffff, "train_attn": true, "train_mlp": true,
            "train_unembed": false });
        let number = self.next_model.fetch_add(1, Ordering::SeqCst);
        let body = json!({ "session_id": self.session, "model_seq_id": number, "base_model": base_model,
            "lora_config": lora, "model_role": "policy", "type": "create_model" });
        let requests = Arc::clone(&self.requests);
        let id = wait(&self.thread, async move {
            let make = |_| Payload::json(&body);
            // A retry would create another model.
            let mut tries = requests.tries(what);
            let taken = requests.submit("api/v1/create_model", &make, Repeat::Never, &mut tries).await?;
            let text = |key: &str| {
                let found = taken[key].as_str().map(str::to_owned);
                found.ok_or_else(|| TinkerError::Protocol { what, reason: format!("it has no {key}") })
            };
            // Without a result, the submission's reply may name the model.
            let result = requests.result(&text("request_id")?, Repeat::Harmless, &mut tries).await?;
            // Hosted services name the model in the result.
            let named = match &result {
                Some(Outcome::Json(value)) => value["model_id"].as_str().map(str::to_owned),
                _ => None,
            };
            named.map_or_else(|| text("model_id"), Ok)
        })?;
        Ok(RemoteModel { id, next: AtomicI32::new(1) })
    }

    /// Drops a model. Dropping a model twice is not an error.
    ///
    /// # Errors
    /// Fails if the service does not reply.
    pub fn unload_model(&self, model: &RemoteModel) -> Result<(), TinkerError> {
        let body = json!({ "model_id": model.id });
        match self.ask_json("unload_model", "api/v1/unload_model", &body, Repeat::Harmless) {
            Ok(_) | Err(TinkerError::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the targets' log-probs per sequence.
    pub(crate) fn forward(
        &self,
        model: &RemoteModel,
        examples: &[Example],
    ) -> Result<Vec<Vec<f32>>, TinkerError> {
        self.pass(model, &NamedLoss::plain("cross_entropy"), examples, true)
    }

    /// Adds the gradient of a loss to the accumulated gradient, and returns the targets' log-probs.
    pub(crate) fn forward_backward(
        &self,
        model: &RemoteModel,
        loss: &NamedLoss,
        examples: &[Example],
    ) -> Result<Vec<Vec<f32>>, TinkerError> {
        self.pass(model, loss, examples, false)
    }

    /// Runs a pass as several requests of limited size. All requests are submitted, in order,
    /// before the first result is awaited.
    fn pass(
        &self,
        model: &RemoteModel,
        loss: &NamedLoss,
        examples: &[Example],
        forward_only: bool,
    ) -> Result<Vec<Vec<f32>>, TinkerError> {
        let what = if forward_only { "forward" } else { "forward_backward" };
        let path = match self.dialect {
            Dialect::Json if forward_only => "api/v1/forward",
            _ => "api/v1/forward_backward",
        };
        let repeat = if forward_only { Repeat::Harmless } else { self.numbered() };
        let chunks = chunked(examples);
        let payloads: Vec<Payload> =
            chunks.iter().map(|chunk| encode(self.dialect, model, loss, chunk, forward_only)).collect();
        let requests = Arc::clone(&self.requests);
        let outcomes = wait(&self.thread, async move {
            let mut taken = Vec::new();
            for payload in &payloads {
                let mut tries = requests.tries(what);
                taken.push(requests.submit(path, &|_| payload.clone(), repeat, &mut tries).await?);
            }
            let mut outcomes = Vec::new();
            for (value, payload) in taken.iter().zip(&payloads) {
                let id = value["request_id"].as_str().unwrap_or_default();
                // Requests run one after the other, so each time limit starts when the previous
                // ends.
                let mut tries = requests.tries(what);
                outcomes.push(match requests.result(id, repeat, &mut tries).await? {
                    Some(outcome) => outcome,
                    None => requests.carry_out(path, &|_| payload.clone(), repeat, &mut tries).await?,
                });
            }
            Ok(outcomes)
        })?;
        let mut rows = Vec::with_capacity(examples.len());
        for (outcome, chunk) in outcomes.into_iter().zip(&chunks) {
            let found = logprobs_of(outcome).map_err(|reason| TinkerError::Protocol { what, reason })?;
            if found.len() != chunk.len() {
                let reason = format!("it has {} rows for {} sequences", found.len(), chunk.len());
                return Err(TinkerError::Protocol { what, reason });
            }
            rows.extend(found);
        }
        for (row, example) in rows.iter().zip(examples) {
            let targets = example.tokens.len() - 1;
            let bad =
                row.iter().zip(&example.weights).any(|(value, weight)| *weight != 0.0 && !value.is_finite());
            if row.len() != targets || bad {
                let reason =
                    format!("{} log-probabilities for {targets} targets, or one is not a number", row.len());
                return Err(TinkerError::Protocol { what, reason });
            }
        }
        Ok(rows)
    }

    /// Returns whether numbered requests can be retried, which only the protobuf dialect allows.
    fn numbered(&self) -> Repeat {
        match self.dialect {
            Dialect::Protobuf => Repeat::Harmless,
            Dialect::Json => Repeat::Never,
        }
    }

    /// Applies the accumulated gradient; returns the gradient's norm if the service reports it.
    ///
    /// # Errors
    /// Fails if the service rejects the request.
    pub fn optim_step(&self, model: &RemoteModel, adam: &AdamParams) -> Result<Option<f64>, TinkerError> {
        let mut params = json!({
            "learning_rate": adam.learning_rate, "beta1": adam.beta1, "beta2": adam.beta2, "eps": adam.eps,
            "weight_decay": adam.weight_decay,
        });
        if adam.grad_clip_norm > 0.0 {
            params["grad_clip_norm"] = json!(adam.grad_clip_norm);
        }
        let body = json!({ "model_id": model.id, "adam_params": params, "seq_id": model.number() });
        let result = self.ask_json("optim_step", "api/v1/optim_step", &body, self.numbered())?;
        let metrics = result["metrics"].as_object();
        let norm = metrics.into_iter().flatten().find(|(name, _)| name.ends_with("grad_norm"));
        Ok(norm.map(|(_, value)| value.as_f64().unwrap_or(f64::NAN)))
    }

    /// Saves weights and optimizer state for [`Client::load_weights`]; returns their path.
    ///
    /// # Errors
    /// Fails if the service rejects the request.
    pub fn save_weights(&self, model: &RemoteModel) -> Result<String, TinkerError> {
        self.save("save_weights", "api/v1/save_weights", model)
    }

    /// Saves weights for sampling and downloads.
    ///
    /// # Errors
    /// Fails if the service rejects the request.
    pub(crate) fn save_for_sampler(&self, model: &RemoteModel) -> Result<String, TinkerError> {
        self.save("save_weights_for_sampler", "api/v1/save_weights_for_sampler", model)
    }

    fn save(
        &self,
        what: &'static str,
        path: &'static str,
        model: &RemoteModel,
    ) -> Result<String, TinkerError> {
        let number = self.counter.fetch_add(1, Ordering::SeqCst);
        let (id, label) = (model.id.clone(), self.label.clone());
        // Services reject names they have seen.
        let make = move |attempt: u32| {
            let name = format!("turnwise-{label}-{number}-{attempt}");
            Payload::json(&json!({ "model_id": id, "path": name }))
        };
        let result = json_result(what, self.ask(what, path, make, Repeat::Harmless)?)?;
        let path = result["path"].as_str().map(str::to_owned);
        path.ok_or_else(|| TinkerError::Protocol { what, reason: "it has no path".into() })
    }

    /// Saves weights and opens a sampling session.
    ///
    /// # Errors
    /// Fails if the service rejects the request.
    pub(crate) fn sampling_session(&self, model: &RemoteModel) -> Result<String, TinkerError> {
        let what = "save_weights_for_sampler";
        let first = self.counter.fetch_add(1000, Ordering::SeqCst);
        let id = model.id.clone();
        let make = move |attempt: u32| {
            let number = first + i64::from(attempt);
            Payload::json(&json!({ "model_id": id, "sampling_session_seq_id": number, "seq_id": number }))
        };
        let path = "api/v1/save_weights_for_sampler";
        let result = json_result(what, self.ask(what, path, make, Repeat::Harmless)?)?;
        let session = result["sampling_session_id"].as_str().map(str::to_owned);
        session.ok_or_else(|| TinkerError::Protocol { what, reason: "it has no sampling_session_id".into() })
    }

    /// Loads saved weights into an unused model.
    ///
    /// # Errors
    /// Fails if the weights are missing, or if their LoRA rank differs from the model's.
    pub fn load_weights(&self, model: &RemoteModel, path: &str, optimizer: bool) -> Result<(), TinkerError> {
        let body =
            json!({ "model_id": model.id, "path": path, "optimizer": optimizer, "seq_id": model.number() });
        self.ask_json("load_weights", "api/v1/load_weights", &body, Repeat::Never).map(|_| ())
    }

    /// Downloads an archive of [`Client::save_for_sampler`].
    ///
    /// # Errors
    /// Fails if the weights are missing or the file cannot be written.
    pub fn download(&self, path: &str, to: &Path) -> Result<(), TinkerError> {
        let what = "a download";
        // SkyRL names a checkpoint `MODEL/NAME`, Tinker `MODEL/sampler_weights/NAME`.
        let Some((model, name)) = path.trim_start_matches("tinker://").split_once('/') else {
            return Err(TinkerError::Protocol {
                what,
                reason: format!("`{}` is not a path", shortened(path)),
            });
        };
        let from = format!("api/v1/training_runs/{model}/checkpoints/{name}/archive");
        let (requests, to) = (Arc::clone(&self.requests), to.to_owned());
        wait(&self.thread, async move { requests.download(what, &from, &to).await })
    }

    pub(super) fn next_sample(&self) -> i64 {
        self.samples.fetch_add(1, Ordering::SeqCst)
    }

    /// Drops models at the end of a run, without waiting for a slow service.
    pub(super) fn let_go<'a>(&self, models: impl Iterator<Item = &'a RemoteModel>) {
        let bodies: Vec<Payload> =
            models.map(|model| Payload::json(&json!({ "model_id": model.id }))).collect();
        let requests = Arc::clone(&self.requests);
        let _ = wait(&self.thread, async move {
            for body in bodies {
                let _ = requests.transport.post("api/v1/unload_model", body, Duration::from_secs(2)).await;
            }
            Ok(())
        });
    }

    pub(super) fn requests(&self) -> &Arc<Requests> {
        &self.requests
    }

    pub(super) fn handle(&self) -> &Handle {
        self.thread.handle()
    }
}

fn wait<T: Send + 'static>(
    thread: &RequestThread,
    request: impl Future<Output = Result<T, TinkerError>> + Send + 'static,
) -> Result<T, TinkerError> {
    let ended = |error: ThreadEnded| TinkerError::Protocol { what: "a request", reason: error.to_string() };
    thread.wait(request).map_err(ended)?
}

fn json_result(what: &'static str, outcome: Outcome) -> Result<Value, TinkerError> {
    match outcome {
        Outcome::Json(value) => Ok(value),
        Outcome::Protobuf(_) => {
            Err(TinkerError::Protocol { what, reason: "it is protobuf where JSON is expected".into() })
        }
    }
}
