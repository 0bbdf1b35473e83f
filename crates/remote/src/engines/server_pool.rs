//! Assigns sessions to servers and retries requests.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use turnwise_core::SamplingParams;
use turnwise_train::config::ServersConfig;

use super::concurrency_limit::{ConcurrencyLimit, Permit};
use super::dialect::{self, Dialect, End, GenerateRequest, GenerateResponse, Loading, Refusal};
use super::error::EngineError;
use super::pictures::PromptPictures;
use super::readings::{Highest, Reports};
use super::versions::Published;
use crate::http::{Http, HttpError, api_key, seconds};

pub(crate) const SMALL: usize = 1 << 20;

/// Reasons for transient failures; not logged if a retry succeeds.
const BUSY: &str = "is busy";
const BROKEN_OFF: &str = "broke a request off before its next token";

/// Timeout of short requests, which neither sample nor load weights.
pub(crate) const SHORT: Duration = Duration::from_secs(10);

/// Number of consecutive rejections after which a session moves to another server.
const REFUSALS: u32 = 3;

/// Interval at which a waiting request checks whether its session should move to another server.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) struct ServerPool {
    pub(crate) http: Http,
    pub(crate) dialect: Dialect,
    pub(crate) servers: Vec<Server>,
    timeout: Duration,
    pub(crate) give_up: Duration,
    pub(crate) load_every: Duration,
    pub(crate) vocabulary: usize,
    counters: Counters,
    pub(crate) highest: Highest,
    /// Number of this run's requests that have no complete response yet.
    under_way: AtomicUsize,
    current: Mutex<String>,
    notes: Mutex<Vec<String>>,
    troubles: Mutex<BTreeMap<(usize, String), u64>>,
    pub(crate) samplers: AtomicUsize,
}

pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) limit: ConcurrencyLimit,
    pub(crate) reports: Reports,
    sessions: AtomicUsize,
    /// Held during loading, so that concurrent requests load a version once.
    pub(crate) loading: tokio::sync::Mutex<()>,
    /// Number of weight replacements started plus the number finished; odd during a replacement.
    pub(crate) replacements: AtomicU64,
}

struct UnderWay<'a>(&'a AtomicUsize);

impl<'a> UnderWay<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    retries: AtomicU64,
    busy: AtomicU64,
    aborts: AtomicU64,
    reloads: AtomicU64,
    failures: AtomicU64,
}

/// A sampler's request. Each attempt sends one [`GenerateRequest`]; a failed or aborted attempt is
/// followed by another.
pub(crate) struct PendingRequest {
    pub(crate) id: String,
    pub(crate) session: String,
    pub(crate) prompt: Vec<u32>,
    pub(crate) pictures: PromptPictures,
    pub(crate) params: SamplingParams,
    pub(crate) max_tokens: usize,
    pub(crate) seed: turnwise_core::Seed,
}

#[derive(Debug)]
pub(crate) enum Unanswered {
    Request(String),
    Setup(String),
}

impl ServerPool {
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
            limit: ConcurrencyLimit::new(config.max_requests_per_server),
            reports: Reports::default(),
            sessions: AtomicUsize::new(0),
            loading: tokio::sync::Mutex::new(()),
            replacements: AtomicU64::new(0),
        };
        Ok(Self {
            http: Http::new(key.as_deref())?,
            dialect: Dialect::of(config),
            servers: config.urls.iter().map(server).collect(),
            timeout: seconds(config.timeout_s),
            give_up: seconds(config.give_up_s),
            load_every: seconds(config.load_every_s),
            vocabulary,
            counters: Counters::default(),
            highest: Highest::default(),
            under_way: AtomicUsize::new(0),
            current: Mutex::default(),
            notes: Mutex::default(),
            troubles: Mutex::default(),
            samplers: AtomicUsize::new(0),
        })
    }

    pub(crate) fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Acquire)
    }

    pub(crate) fn current(&self) -> MutexGuard<'_, String> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Assigns a session to the responsive server with the fewest sessions and requests.
    pub(crate) fn assign(&self) -> usize {
        self.assign_among(|_| true).unwrap_or(0)
    }

    fn assign_among(&self, among: impl Fn(&usize) -> bool) -> Option<usize> {
        let load = |index: &usize| {
            let server = &self.servers[*index];
            let before = server.reports.before_a_session(self.load_every);
            (!server.limit.is_open(), server.sessions.load(Ordering::Relaxed) as u64 + before, *index)
        };
        let chosen = (0..self.servers.len()).filter(among).min_by_key(load)?;
        self.servers[chosen].sessions.fetch_add(1, Ordering::Relaxed);
        Some(chosen)
    }

    pub(crate) fn release(&self, server: usize) {
        self.servers[server].sessions.fetch_sub(1, Ordering::Relaxed);
    }

    fn move_session(&self, place: &AtomicUsize) {
        let here = place.load(Ordering::Relaxed);
        let better = |index: &usize| *index != here && self.servers[*index].limit.is_open();
        if let Some(there) = self.assign_among(better) {
            self.release(here);
            place.store(there, Ordering::Relaxed);
        }
    }

    /// Waits until a request may be sent, moving the session to another server if its server keeps
    /// failing.
    async fn acquire(&self, place: &AtomicUsize) -> (usize, Permit<'_>) {
        loop {
            let limit = &self.servers[place.load(Ordering::Relaxed)].limit;
            if limit.failures() >= REFUSALS && !limit.is_open() {
                self.move_session(place);
            }
            let index = place.load(Ordering::Relaxed);
            if let Ok(permit) = tokio::time::timeout(LOOK, self.servers[index].limit.acquire()).await {
                return (index, permit);
            }
        }
    }

    /// Sends a request until its response is complete. The tokens of an aborted attempt are kept;
    /// those of other failed attempts are discarded.
    pub(crate) async fn generate(
        &self,
        place: &AtomicUsize,
        version: &Published,
        pending: &PendingRequest,
    ) -> Result<GenerateResponse, Unanswered> {
        let _under_way = UnderWay::begin(&self.under_way);
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        let (mut prompt, mut draws) = (pending.prompt.clone(), pending.seed.rng());
        let (tokens, logprobs, weights) = (Vec::new(), Vec::new(), Vec::new());
        let mut whole =
            GenerateResponse { tokens, logprobs, end: End::Abort, cached: 0, weights, prompt: None };
        let mut seed = draws.bits();
        // First failure since the last progress; waiting for a permit does not count.
        let mut failing_since: Option<Instant> = None;
        let (mut attempt, mut refusals) = (0u64, 0);
        loop {
            let (index, permit) = self.acquire(place).await;
            let (server, began) = (&self.servers[index], Instant::now());
            let request = GenerateRequest {
                id: &format!("{}-{attempt}", pending.id),
                version: &version.name,
                adapter: version.adapter,
                prompt: &prompt,
                pictures: &pending.pictures,
                params: &pending.params,
                max_tokens: pending.max_tokens - whole.tokens.len(),
                seed,
            };
            let found = self.send(server, &pending.session, &request).await;
            drop(permit);
            attempt += 1;
            let reason = match found {
                Ok(response) => {
                    server.limit.answered();
                    let progress = !response.tokens.is_empty();
                    prompt.extend(&response.tokens);
                    append(&mut whole, response, pending.max_tokens);
                    if whole.end != End::Abort {
                        return Ok(whole);
                    }
                    self.counters.aborts.fetch_add(1, Ordering::Relaxed);
                    seed = draws.bits();
                    // Repeated aborts without tokens are given up eventually.
                    if progress {
                        failing_since = None;
                        refusals = 0;
                        continue;
                    }
                    self.count_refusal(&mut refusals, place);
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    BROKEN_OFF.to_owned()
                }
                Err(Fault::Busy(retry_after)) => {
                    self.counters.busy.fetch_add(1, Ordering::Relaxed);
                    server.limit.busy(retry_after);
                    self.count_refusal(&mut refusals, place);
                    BUSY.to_owned()
                }
                Err(fault @ (Fault::NoAdapter | Fault::OtherWeights(_))) => {
                    let seen = if let Fault::OtherWeights(seen) = fault { Some(seen) } else { None };
                    match self.reload(index, version, seen, attempt, place).await? {
                        None => continue,
                        Some(reason) => reason,
                    }
                }
                Err(Fault::Refused(reason)) => return Err(Unanswered::Request(reason)),
                Err(Fault::Setup(reason)) => {
                    return Err(Unanswered::Setup(format!("server {index}: {reason}")));
                }
                Err(Fault::Failed(reason)) => {
                    server.limit.failed();
                    self.move_session(place);
                    reason
                }
            };
            self.trouble(index, &reason);
            if failing_since.get_or_insert(began).elapsed() >= self.give_up {
                self.counters.failures.fetch_add(1, Ordering::Relaxed);
                let seconds = self.give_up.as_secs_f64();
                return Err(Unanswered::Request(format!(
                    "no server has answered it for {seconds} s; the last reason, of server {index}: {reason}"
                )));
            }
            self.counters.retries.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a rejected attempt. After several consecutive rejections, the session moves to
    /// another server.
    fn count_refusal(&self, refusals: &mut u32, place: &AtomicUsize) {
        *refusals += 1;
        if *refusals >= REFUSALS {
            self.move_session(place);
        }
    }

    /// Loads a version that a server lacks; if loading fails, returns the reason. `seen` is the
    /// server's replacement count before the attempt.
    async fn reload(
        &self,
        index: usize,
        version: &Published,
        seen: Option<u64>,
        attempt: u64,
        place: &AtomicUsize,
    ) -> Result<Option<String>, Unanswered> {
        self.counters.reloads.fetch_add(1, Ordering::Relaxed);
        if seen.is_some() {
            self.trouble(index, "had other weights than those of the version");
        }
        match self.load(index, version, seen).await {
            Loading::Done if attempt < 8 => Ok(None),
            Loading::Done => Ok(Some("loses the weights again and again".into())),
            Loading::Refused(reason) => Err(Unanswered::Setup(format!("server {index} {reason}"))),
            Loading::Failed(reason) => {
                self.servers[index].limit.failed();
                self.move_session(place);
                Ok(Some(reason))
            }
        }
    }

    async fn send(
        &self,
        server: &Server,
        session: &str,
        request: &GenerateRequest<'_>,
    ) -> Result<GenerateResponse, Fault> {
        let before = server.replacements.load(Ordering::Acquire);
        let body = dialect::request(self.dialect, request).to_string().into_bytes();
        let url = format!("{}{}", server.url, dialect::path(self.dialect));
        let limits = (self.timeout, dialect::response_limit(request.prompt.len(), request.max_tokens));
        let header = Some((dialect::session_header(self.dialect), session));
        let reply = self.http.post(&url, header, body, limits).await;
        let reply = reply.map_err(|error| Fault::Failed(error.reason(self.timeout)))?;
        if reply.status == 200 {
            let response = dialect::response(self.dialect, &reply.body, request.max_tokens, self.vocabulary)
                .map_err(Fault::Failed)?;
            let read = request.pictures.check(request.prompt, response.prompt.as_deref());
            read.map_err(Fault::Setup)?;
            if !request.adapter {
                self.hold_to_version(server, before, request.version, &response).await?;
            }
            return Ok(response);
        }
        Err(match dialect::refusal(self.dialect, reply.status, &reply.body, request.adapter()) {
            Refusal::NoAdapter => Fault::NoAdapter,
            Refusal::Busy => Fault::Busy(reply.retry_after),
            Refusal::Request(reason) => Fault::Refused(reason),
            Refusal::Setup(reason) => Fault::Setup(reason),
            Refusal::Failed(reason) => Fault::Failed(reason),
        })
    }

    pub(crate) async fn generate_once(
        &self,
        server: usize,
        version: &Published,
        pending: &PendingRequest,
    ) -> Result<GenerateResponse, String> {
        let _under_way = UnderWay::begin(&self.under_way);
        let request = GenerateRequest {
            id: &pending.id,
            version: &version.name,
            adapter: version.adapter,
            prompt: &pending.prompt,
            pictures: &pending.pictures,
            params: &pending.params,
            max_tokens: pending.max_tokens,
            seed: pending.seed.rng().bits(),
        };
        self.send(&self.servers[server], &pending.session, &request).await.map_err(|fault| match fault {
            Fault::Busy(_) => BUSY.into(),
            Fault::NoAdapter => "does not have the adapter that it has just loaded".into(),
            Fault::OtherWeights(_) => "has other weights than those that it has just loaded".into(),
            Fault::Refused(reason) | Fault::Setup(reason) | Fault::Failed(reason) => reason,
        })
    }

    pub(crate) async fn check_up(&self, max_model_len: usize) -> Result<(), EngineError> {
        for (server, Server { url, .. }) in self.servers.iter().enumerate() {
            let failed = |reason: String| EngineError::Server { server, reason };
            match self.http.get(&format!("{url}/health"), SHORT, SMALL).await {
                Ok(reply) if reply.status == 200 => {}
                Ok(reply) => return Err(failed(format!("its health is status {}", reply.status))),
                Err(HttpError::Timeout) => {
                    return Err(failed(format!("did not answer within {} s", SHORT.as_secs())));
                }
                Err(error) => {
                    return Err(failed(format!("cannot be asked: {}; is the server up?", error.cause())));
                }
            }
            let Ok(models) = self.http.get(&format!("{url}/v1/models"), SHORT, SMALL).await else { continue };
            let models: serde_json::Value = serde_json::from_slice(&models.body).unwrap_or_default();
            if let Some(longest) = models.pointer("/data/0/max_model_len").and_then(serde_json::Value::as_u64)
                && longest < max_model_len as u64
            {
                return Err(failed(format!(
                    "has a context of {longest} tokens, and rollout.max_model_len is {max_model_len}; start it with \
                     --max-model-len {max_model_len} (vLLM) or --context-length {max_model_len} (SGLang), or lower \
                     rollout.max_model_len"
                )));
            }
        }
        Ok(())
    }

    pub(crate) fn note(&self, text: String) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    pub(crate) fn trouble(&self, server: usize, reason: &str) {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        *troubles.entry((server, reason.to_owned())).or_default() += 1;
    }

    pub(crate) fn report(&self) -> (Vec<(&'static str, f64)>, Vec<String>) {
        let Counters { requests, retries, busy, aborts, reloads, failures } = &self.counters;
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed) as f64;
        let failed = take(failures);
        let mut numbers = vec![
            ("rollout/engine/requests", take(requests)),
            ("rollout/engine/retries", take(retries)),
            ("rollout/engine/busy", take(busy)),
            ("rollout/engine/aborts", take(aborts)),
            ("rollout/engine/reloads", take(reloads)),
            ("rollout/engine/failures", failed),
        ];
        numbers.extend(self.highest.report());
        let troubles = std::mem::take(&mut *self.troubles.lock().unwrap_or_else(PoisonError::into_inner));
        let note = |((server, reason), count): ((usize, String), u64)| {
            format!(
                "inference server {server} {reason} ({count} times); what was under way there was asked again"
            )
        };
        let mut notes = std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner));
        let no_news = |reason: &str| matches!(reason, BUSY | BROKEN_OFF) && failed == 0.0;
        notes.extend(troubles.into_iter().filter(|((_, reason), _)| !no_news(reason)).map(note));
        (numbers, notes)
    }
}

/// Appends an attempt's tokens to the response. An attempt that was aborted after its last allowed
/// token counts as complete.
fn append(whole: &mut GenerateResponse, response: GenerateResponse, max_tokens: usize) {
    whole.tokens.extend(response.tokens);
    whole.logprobs.extend(response.logprobs);
    whole.cached += response.cached;
    let is_full = whole.tokens.len() == max_tokens;
    whole.end = if response.end == End::Abort && is_full { End::Length } else { response.end };
}

pub(crate) enum Fault {
    Busy(Option<Duration>),
    NoAdapter,
    /// The response was sampled from weights other than the requested version. The field is the
    /// server's replacement count before the request.
    OtherWeights(u64),
    Refused(String),
    Setup(String),
    Failed(String),
}
