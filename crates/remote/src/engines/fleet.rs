//! The servers: which one a session stays with, and a request's way through refusals and failures to its answer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use turnwise_core::SamplingParams;
use turnwise_train::config::{ServerKind, ServersConfig};

use super::adapters::Published;
use super::dialect::{self, Answer, End, Loading, Question, Refusal};
use super::error::EngineError;
use super::gate::Gate;
use crate::http::{Http, HttpError, api_key, seconds};

/// Longest answer of a call that is not sampling.
const SMALL: usize = 1 << 20;

/// Time for a call that is not sampling.
const SHORT: Duration = Duration::from_secs(10);

/// Time in which a server must have loaded an adapter.
const LOADING: Duration = Duration::from_mins(2);

/// Servers that answer for one model.
pub(crate) struct Fleet {
    http: Http,
    pub(crate) kind: ServerKind,
    pub(crate) servers: Vec<Server>,
    timeout: Duration,
    give_up: Duration,
    pub(crate) vocabulary: usize,
    counters: Counters,
    /// Failures by server and reason.
    troubles: Mutex<BTreeMap<(usize, String), u64>>,
    /// Samplers made so far, for the names of requests.
    pub(crate) samplers: AtomicUsize,
}

/// One server.
pub(crate) struct Server {
    url: String,
    gate: Gate,
    /// Sessions that stay with it.
    sessions: AtomicUsize,
    /// Held while an adapter is loaded, so that many requests that miss it load it once.
    loading: tokio::sync::Mutex<()>,
}

/// Numbers since the last report.
#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    retries: AtomicU64,
    busy: AtomicU64,
    aborts: AtomicU64,
    reloads: AtomicU64,
    failures: AtomicU64,
}

/// A request of a sampler.
pub(crate) struct Ask {
    pub(crate) id: String,
    pub(crate) session: String,
    pub(crate) prompt: Vec<u32>,
    pub(crate) params: SamplingParams,
    pub(crate) max_tokens: usize,
    pub(crate) seed: turnwise_core::Seed,
}

/// Reason why a request has no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// This request alone.
    Request(String),
    /// Every other one too.
    Setup(String),
}

impl Fleet {
    pub(crate) fn new(config: &ServersConfig, vocabulary: usize) -> Result<Self, EngineError> {
        if !cfg!(feature = "tls")
            && let Some(server) = config.urls.iter().position(|url| url.starts_with("https://"))
        {
            let reason = "https needs a build of turnwise-remote with its feature `tls`".into();
            return Err(EngineError::Server { server, reason });
        }
        let key = api_key(&config.api_key_env)?;
        let server = |url: &String| Server {
            url: url.trim_end_matches('/').to_owned(),
            gate: Gate::new(config.max_requests_per_server),
            sessions: AtomicUsize::new(0),
            loading: tokio::sync::Mutex::new(()),
        };
        Ok(Self {
            http: Http::new(key.as_deref())?,
            kind: config.kind,
            servers: config.urls.iter().map(server).collect(),
            timeout: seconds(config.timeout_s),
            give_up: seconds(config.give_up_s),
            vocabulary,
            counters: Counters::default(),
            troubles: Mutex::default(),
            samplers: AtomicUsize::new(0),
        })
    }

    /// The server of a new session: of those that answer the one with the fewest sessions.
    pub(crate) fn assign(&self) -> usize {
        let load = |index: &usize| {
            let server = &self.servers[*index];
            (!server.gate.is_open(), server.sessions.load(Ordering::Relaxed), *index)
        };
        let chosen = (0..self.servers.len()).min_by_key(load).unwrap_or(0);
        self.servers[chosen].sessions.fetch_add(1, Ordering::Relaxed);
        chosen
    }

    /// The session on this server has ended.
    pub(crate) fn release(&self, server: usize) {
        self.servers[server].sessions.fetch_sub(1, Ordering::Relaxed);
    }

    /// A server that answers in the place of one that does not, where there is one; the session goes with it.
    fn elsewhere(&self, place: &AtomicUsize) {
        let here = place.load(Ordering::Relaxed);
        let better = |index: &usize| *index != here && self.servers[*index].gate.is_open();
        if (0..self.servers.len()).any(|index| better(&index)) {
            let there = self.assign();
            self.release(here);
            place.store(there, Ordering::Relaxed);
        }
    }

    /// Asks until there is an answer. Tokens of a server that gave up in between are kept and the rest is asked for; of any
    /// other attempt that failed nothing is used, so that every token is sampled once.
    pub(crate) async fn answer(
        &self,
        place: &AtomicUsize,
        adapter: &Published,
        ask: &Ask,
    ) -> Result<Answer, Unanswered> {
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        let (mut prompt, mut draws) = (ask.prompt.clone(), ask.seed.rng());
        let mut whole = Answer { tokens: Vec::new(), logprobs: Vec::new(), end: End::Abort, cached: 0 };
        let mut seed = draws.bits();
        let mut since = Instant::now();
        let mut attempt = 0u64;
        loop {
            let index = place.load(Ordering::Relaxed);
            let server = &self.servers[index];
            let left = ask.max_tokens - whole.tokens.len();
            let question = Question {
                id: &format!("{}-{attempt}", ask.id),
                adapter: &adapter.name,
                prompt: &prompt,
                params: &ask.params,
                max_tokens: left,
                seed,
            };
            let passed = server.gate.pass().await;
            let found = self.ask(server, &ask.session, &question).await;
            drop(passed);
            attempt += 1;
            let reason = match found {
                Ok(answer) => {
                    server.gate.answered();
                    since = Instant::now();
                    whole.cached += answer.cached;
                    whole.end = answer.end;
                    prompt.extend(&answer.tokens);
                    let progress = !answer.tokens.is_empty();
                    whole.tokens.extend(answer.tokens);
                    whole.logprobs.extend(answer.logprobs);
                    if whole.end == End::Abort && whole.tokens.len() == ask.max_tokens {
                        whole.end = End::Length;
                    }
                    if whole.end != End::Abort {
                        return Ok(whole);
                    }
                    self.counters.aborts.fetch_add(1, Ordering::Relaxed);
                    // What comes next has draws of its own.
                    seed = draws.bits();
                    if !progress {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                    continue;
                }
                Err(Fault::Busy(retry_after)) => {
                    self.counters.busy.fetch_add(1, Ordering::Relaxed);
                    server.gate.busy(retry_after);
                    "is busy".to_owned()
                }
                Err(Fault::NoAdapter) => {
                    self.counters.reloads.fetch_add(1, Ordering::Relaxed);
                    match self.load(index, adapter).await {
                        Loading::Done if attempt < 8 => continue,
                        Loading::Done => "loses the adapter again and again".into(),
                        Loading::Refused(reason) => {
                            return Err(Unanswered::Setup(format!("server {index} {reason}")));
                        }
                        Loading::Failed(reason) => reason,
                    }
                }
                Err(Fault::Refused(reason)) => return Err(Unanswered::Request(reason)),
                Err(Fault::Setup(reason)) => {
                    return Err(Unanswered::Setup(format!("server {index}: {reason}")));
                }
                Err(Fault::Failed(reason)) => {
                    server.gate.failed();
                    self.elsewhere(place);
                    reason
                }
            };
            self.trouble(index, &reason);
            if since.elapsed() >= self.give_up {
                self.counters.failures.fetch_add(1, Ordering::Relaxed);
                let seconds = self.give_up.as_secs_f64();
                return Err(Unanswered::Request(format!(
                    "no server has answered for {seconds} s; the last reason, of server {index}: {reason}"
                )));
            }
            self.counters.retries.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn ask(&self, server: &Server, session: &str, question: &Question<'_>) -> Result<Answer, Fault> {
        let body = dialect::request(self.kind, question).to_string().into_bytes();
        let url = format!("{}{}", server.url, dialect::path(self.kind));
        let limits = (self.timeout, dialect::answer_limit(question.max_tokens));
        let header = Some((dialect::session_header(self.kind), session));
        let reply = self.http.post(&url, header, body, limits).await.map_err(|error| self.fault(error))?;
        if reply.status == 200 {
            return dialect::answer(self.kind, &reply.body, question.max_tokens, self.vocabulary)
                .map_err(Fault::Failed);
        }
        Err(match dialect::refusal(self.kind, reply.status, &reply.body, question.adapter) {
            Refusal::NoAdapter => Fault::NoAdapter,
            Refusal::Busy => Fault::Busy(reply.retry_after),
            Refusal::Request(reason) => Fault::Refused(reason),
            Refusal::Setup(reason) => Fault::Setup(reason),
            Refusal::Failed(reason) => Fault::Failed(reason),
        })
    }

    /// One answer of one server, without another attempt.
    pub(crate) async fn ask_once(
        &self,
        server: usize,
        adapter: &Published,
        ask: &Ask,
    ) -> Result<Answer, String> {
        let question = Question {
            id: &ask.id,
            adapter: &adapter.name,
            prompt: &ask.prompt,
            params: &ask.params,
            max_tokens: ask.max_tokens,
            seed: ask.seed.rng().bits(),
        };
        self.ask(&self.servers[server], &ask.session, &question).await.map_err(|fault| match fault {
            Fault::Busy(_) => "is busy".into(),
            Fault::NoAdapter => "does not have the adapter that it has just loaded".into(),
            Fault::Refused(reason) | Fault::Setup(reason) | Fault::Failed(reason) => reason,
        })
    }

    fn fault(&self, error: HttpError) -> Fault {
        Fault::Failed(match error {
            HttpError::Unreachable(reason) => format!("cannot be reached: {reason}"),
            HttpError::Broken(reason) => format!("broke off: {reason}"),
            HttpError::Timeout => format!("did not answer within {} s", self.timeout.as_secs_f64()),
        })
    }

    /// Loads an adapter on one server, once.
    pub(crate) async fn load(&self, index: usize, adapter: &Published) -> Loading {
        let server = &self.servers[index];
        let _alone = server.loading.lock().await;
        let body = serde_json::json!({ "lora_name": adapter.name, "lora_path": adapter.server_path });
        let url = format!("{}{}", server.url, dialect::adapter_paths(self.kind).0);
        match self.http.post(&url, None, body.to_string().into_bytes(), (LOADING, SMALL)).await {
            Ok(reply) => dialect::loaded(self.kind, reply.status, &reply.body),
            Err(error) => match self.fault(error) {
                Fault::Failed(reason) => Loading::Failed(reason),
                _ => Loading::Failed("failed".into()),
            },
        }
    }

    /// Loads an adapter on every server, with repetitions. Servers that cannot be reached load it when they are back: the
    /// first request that misses it says so.
    pub(crate) async fn load_everywhere(&self, adapter: &Published) -> Result<(), EngineError> {
        let since = Instant::now();
        let mut waiting: Vec<usize> = (0..self.servers.len()).collect();
        let mut loaded = 0;
        let mut wait = Duration::from_millis(200);
        loop {
            let mut last = String::new();
            let mut left = Vec::new();
            for server in waiting {
                match self.load(server, adapter).await {
                    Loading::Done => loaded += 1,
                    Loading::Refused(reason) => return Err(EngineError::Server { server, reason }),
                    Loading::Failed(reason) => {
                        self.trouble(server, &reason);
                        self.servers[server].gate.failed();
                        left.push(server);
                        last = format!("server {server}: {reason}");
                    }
                }
            }
            if left.is_empty() || loaded > 0 {
                return Ok(());
            }
            if since.elapsed() >= self.give_up {
                let seconds = self.give_up.as_secs_f64();
                let reason = format!("no server took the adapter within {seconds} s; {last}");
                return Err(EngineError::Backend(reason));
            }
            waiting = left;
            tokio::time::sleep(wait).await;
            wait = (2 * wait).min(Duration::from_secs(10));
        }
    }

    /// Unloads an adapter everywhere; a server that does not answer keeps it.
    pub(crate) async fn unload_everywhere(&self, name: &str) {
        let body = serde_json::json!({ "lora_name": name }).to_string();
        for server in &self.servers {
            let url = format!("{}{}", server.url, dialect::adapter_paths(self.kind).1);
            let _ = self.http.post(&url, None, body.clone().into_bytes(), (SHORT, SMALL)).await;
        }
    }

    /// Asks every server for its health, and that its context is long enough where it says how long that is.
    pub(crate) async fn check_up(&self, max_context: usize) -> Result<(), EngineError> {
        for (server, Server { url, .. }) in self.servers.iter().enumerate() {
            let failed = |reason: String| EngineError::Server { server, reason };
            match self.http.get(&format!("{url}/health"), SHORT, SMALL).await {
                Ok(reply) if reply.status == 200 => {}
                Ok(reply) => return Err(failed(format!("its health is status {}", reply.status))),
                Err(HttpError::Timeout) => {
                    return Err(failed(format!("did not answer within {} s", SHORT.as_secs())));
                }
                Err(HttpError::Unreachable(reason) | HttpError::Broken(reason)) => {
                    return Err(failed(format!("cannot be asked: {reason}; is the server up?")));
                }
            }
            let Ok(models) = self.http.get(&format!("{url}/v1/models"), SHORT, SMALL).await else { continue };
            let models: serde_json::Value = serde_json::from_slice(&models.body).unwrap_or_default();
            if let Some(longest) = models.pointer("/data/0/max_model_len").and_then(serde_json::Value::as_u64)
                && longest < max_context as u64
            {
                return Err(failed(format!(
                    "has a context of {longest} tokens, and rollout.max_context is {max_context}; start it with \
                     --max-model-len {max_context} (vLLM) or --context-length {max_context} (SGLang), or lower \
                     rollout.max_context"
                )));
            }
        }
        Ok(())
    }

    fn trouble(&self, server: usize, reason: &str) {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        *troubles.entry((server, reason.to_owned())).or_default() += 1;
    }

    /// Numbers and notes since the last report.
    pub(crate) fn report(&self) -> (Vec<(&'static str, f64)>, Vec<String>) {
        let Counters { requests, retries, busy, aborts, reloads, failures } = &self.counters;
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed) as f64;
        let numbers = vec![
            ("rollout/engine/requests", take(requests)),
            ("rollout/engine/retries", take(retries)),
            ("rollout/engine/busy", take(busy)),
            ("rollout/engine/aborts", take(aborts)),
            ("rollout/engine/reloads", take(reloads)),
            ("rollout/engine/failures", take(failures)),
        ];
        let troubles = std::mem::take(&mut *self.troubles.lock().unwrap_or_else(PoisonError::into_inner));
        let note = |((server, reason), count): ((usize, String), u64)| {
            format!(
                "inference server {server} {reason} ({count} times); what was under way there was asked again"
            )
        };
        (numbers, troubles.into_iter().filter(|((_, reason), _)| reason != "is busy").map(note).collect())
    }
}

/// Reason why an attempt has no answer.
enum Fault {
    Busy(Option<Duration>),
    NoAdapter,
    Refused(String),
    Setup(String),
    Failed(String),
}
