//! HTTP routes of OpenAI's API.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream;
use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, timeout, timeout_at};

use super::reply::{Part, Reply};
use super::{Call, Completions, Limits};
use crate::openai::{
    ApiError, ChatChunk, ChatRequest, ChatResponse, SamplingFields, TextRequest, TextResponse,
};

struct Shared<C> {
    completions: Arc<C>,
    limits: Limits,
    next: AtomicU64,
}

struct Rejected(ApiError);

impl From<ApiError> for Rejected {
    fn from(error: ApiError) -> Self {
        Self(error)
    }
}

impl IntoResponse for Rejected {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = json_response(status, self.0.body().to_string());
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

fn json_response(status: StatusCode, body: String) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

fn json_of(value: &impl Serialize) -> Result<Response, Rejected> {
    match serde_json::to_string(value) {
        Ok(body) => Ok(json_response(StatusCode::OK, body)),
        Err(error) => Err(ApiError::internal(format!("the answer cannot be written: {error}")).into()),
    }
}

pub(super) fn router<C: Completions>(completions: Arc<C>, limits: Limits) -> Router {
    let shared = Arc::new(Shared { completions, limits, next: AtomicU64::new(0) });
    Router::new()
        .route("/v1/chat/completions", post(chat::<C>))
        .route("/v1/completions", post(text::<C>))
        .route("/v1/models", get(models::<C>))
        .route("/v1/models/{*name}", get(model::<C>))
        .route("/health", get(async || json_response(StatusCode::OK, json!({ "status": "ok" }).to_string())))
        .fallback(other::<C>)
        .method_not_allowed_fallback(wrong_method)
        .with_state(shared)
}

async fn wrong_method(request: Request) -> Rejected {
    let message = format!("{} has no method {}", request.uri().path(), request.method());
    Rejected(ApiError::new(405, message))
}

impl<C: Completions> Shared<C> {
    fn admit(&self, headers: &HeaderMap) -> Result<Call, Rejected> {
        if self.limits.loopback_hosts_only {
            let host = header_text(headers, &header::HOST).unwrap_or_default();
            if !is_loopback(host) {
                let message = format!(
                    "the host {host:?} is not this machine: ask for http://localhost, or start the server with an API key"
                );
                return Err(ApiError::new(403, message).into());
            }
        }
        let key = header_text(headers, &header::AUTHORIZATION).and_then(|value| {
            let (scheme, key) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| key.trim().to_owned())
        });
        self.completions.authorize(key.as_deref())?;
        let other = |(name, value): (&HeaderName, &HeaderValue)| {
            let value = value.to_str().ok().filter(|_| name != header::AUTHORIZATION)?;
            Some((name.as_str().to_owned(), value.to_owned()))
        };
        let headers = headers.iter().filter_map(other).collect();
        Ok(Call { key, number: self.next.fetch_add(1, Ordering::Relaxed), headers })
    }

    /// Checks a request and parses it on another thread, so that parsing a long request does not
    /// delay other clients.
    async fn read<T: Send + 'static>(
        &self,
        request: Request,
        read: fn(&[u8]) -> Result<T, ApiError>,
    ) -> Result<(Call, T), Rejected> {
        let call = self.admit(request.headers())?;
        let body = self.body(request).await?;
        let read = tokio::task::spawn_blocking(move || read(&body)).await;
        Ok((call, read.map_err(|_| died())??))
    }

    fn too_long(&self) -> ApiError {
        ApiError::new(413, format!("the body has more than {} bytes", self.limits.body_bytes))
    }

    /// Rejects a wrong content type or a declared length above the limit.
    fn check_body(&self, headers: &HeaderMap) -> Result<(), Rejected> {
        // Web pages may send other content types without a preflight request.
        let kind = header_text(headers, &header::CONTENT_TYPE).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/json") {
            return Err(ApiError::new(415, "send JSON, with Content-Type: application/json").into());
        }
        let length =
            header_text(headers, &header::CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
        if length.is_some_and(|length| length > self.limits.body_bytes as u64) {
            return Err(self.too_long().into());
        }
        Ok(())
    }

    async fn body(&self, request: Request) -> Result<Bytes, Rejected> {
        self.check_body(request.headers())?;
        let most = self.limits.body_bytes;
        match timeout(self.limits.body, to_bytes(request.into_body(), most)).await {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(_)) => Err(self.too_long().into()),
            Err(_) => {
                let seconds = self.limits.body.as_secs_f64();
                Err(ApiError::new(408, format!("the body did not arrive within {seconds} s")).into())
            }
        }
    }
}

fn header_text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

fn is_loopback(host: &str) -> bool {
    if let Ok(address) = host.parse::<std::net::SocketAddr>() {
        return address.ip().is_loopback();
    }
    let name = host.rsplit_once(':').map_or(host, |(name, port)| {
        if port.bytes().all(|byte| byte.is_ascii_digit()) { name } else { host }
    });
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

async fn models<C: Completions>(
    State(shared): State<Arc<Shared<C>>>,
    headers: HeaderMap,
) -> Result<Response, Rejected> {
    shared.admit(&headers)?;
    json_of(&json!({ "object": "list", "data": shared.completions.models() }))
}

async fn model<C: Completions>(
    State(shared): State<Arc<Shared<C>>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Rejected> {
    shared.admit(&headers)?;
    let models = shared.completions.models();
    if let Some(model) = models.iter().find(|model| model.id == name) {
        return json_of(model);
    }
    let served: Vec<String> = models.into_iter().map(|model| model.id).collect();
    Err(ApiError::no_model(&name, &served).into())
}

async fn other<C: Completions>(
    State(shared): State<Arc<Shared<C>>>,
    request: Request,
) -> Result<Response, Rejected> {
    let call = shared.admit(request.headers())?;
    let path = request.uri().path().to_owned();
    if request.method() != axum::http::Method::POST {
        return Err(ApiError::no_path(&path).into());
    }
    let body = shared.body(request).await?;
    let completions = Arc::clone(&shared.completions);
    let answer = tokio::task::spawn_blocking(move || completions.post(&call, &path, &body)).await;
    json_of(&answer.map_err(|_| died())??)
}

fn died() -> ApiError {
    ApiError::internal("the request ended without an answer")
}

fn late() -> ApiError {
    ApiError::new(504, "the answer took longer than the server allows")
}

async fn chat<C: Completions>(
    State(shared): State<Arc<Shared<C>>>,
    request: Request,
) -> Result<Response, Rejected> {
    let (call, request) = shared.read(request, ChatRequest::read).await?;
    let wanted = Wanted::of(&request.sampling);
    let deadline = Instant::now() + shared.limits.answer;
    answer(wanted, deadline, move |reply| shared.completions.chat(&call, request, reply)).await
}

async fn text<C: Completions>(
    State(shared): State<Arc<Shared<C>>>,
    request: Request,
) -> Result<Response, Rejected> {
    let (call, request) = shared.read(request, TextRequest::read).await?;
    let wanted = Wanted::of(&request.sampling);
    let deadline = Instant::now() + shared.limits.answer;
    answer(wanted, deadline, move |reply| shared.completions.text(&call, request, reply)).await
}

#[derive(Clone, Copy, Debug)]
struct Wanted {
    stream: bool,
    usage: bool,
}

impl Wanted {
    fn of(sampling: &SamplingFields) -> Self {
        Self { stream: sampling.stream, usage: sampling.include_usage }
    }
}

trait Whole: Serialize + Send + 'static {
    type Chunk: Serialize + Send + 'static;
    fn chunks(self, include_usage: bool) -> Vec<Self::Chunk>;
}

impl Whole for ChatResponse {
    type Chunk = ChatChunk;
    fn chunks(self, include_usage: bool) -> Vec<ChatChunk> {
        self.into_chunks(include_usage)
    }
}

impl Whole for TextResponse {
    type Chunk = Self;
    fn chunks(mut self, include_usage: bool) -> Vec<Self> {
        let usage = self.usage.take().filter(|_| include_usage);
        let last = usage.map(|usage| Self { choices: Vec::new(), usage: Some(usage), ..self.clone() });
        std::iter::once(self).chain(last).collect()
    }
}

/// Runs `work` on a thread that may block, and returns the response built from the parts that
/// `work` sends.
async fn answer<W: Whole>(
    wanted: Wanted,
    deadline: Instant,
    work: impl FnOnce(Reply<W, W::Chunk>) + Send + 'static,
) -> Result<Response, Rejected> {
    let (reply, mut parts) = Reply::channel();
    tokio::task::spawn_blocking(move || work(reply));
    let first = timeout_at(deadline, parts.recv()).await.map_err(|_| late())?;
    match first {
        None => Err(died().into()),
        Some(Part::Whole(Err(error))) => Err(error.into()),
        Some(Part::Whole(Ok(whole))) if !wanted.stream => json_of(&whole),
        Some(Part::Whole(Ok(whole))) => {
            let events: String = whole.chunks(wanted.usage).iter().map(event).collect();
            Ok(event_stream(Body::from(events + DONE)))
        }
        Some(Part::End) => Ok(event_stream(Body::from(DONE))),
        Some(Part::Chunk(chunk)) => Ok(event_stream(streamed(event(&chunk), parts, deadline))),
    }
}

const DONE: &str = "data: [DONE]\n\n";

fn event(value: &impl Serialize) -> String {
    match serde_json::to_string(value) {
        Ok(json) => format!("data: {json}\n\n"),
        Err(error) => failure(&ApiError::internal(format!("the answer cannot be written: {error}"))),
    }
}

fn failure(error: &ApiError) -> String {
    format!("data: {}\n\n", error.body())
}

fn event_stream(body: Body) -> Response {
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    (headers, body).into_response()
}

/// Returns a stream's body: one event per part until the end or an error.
fn streamed<W: Whole>(first: String, parts: Receiver<Part<W, W::Chunk>>, deadline: Instant) -> Body {
    let state = (Some(first), Some(parts));
    let stream = stream::unfold(state, move |(first, parts)| async move {
        let mut parts = parts?;
        if let Some(first) = first {
            return Some((first, (None, Some(parts))));
        }
        let mut events = String::new();
        let next = timeout_at(deadline, parts.recv()).await;
        let mut part = next.unwrap_or_else(|_| Some(Part::Whole(Err(late()))));
        // Sends everything that arrived meanwhile at once.
        loop {
            match part {
                Some(Part::Chunk(chunk)) => events.push_str(&event(&chunk)),
                Some(Part::End) => {
                    events.push_str(DONE);
                    return Some((events, (None, None)));
                }
                Some(Part::Whole(Ok(_))) | None => {
                    events.push_str(&failure(&died()));
                    return Some((events, (None, None)));
                }
                Some(Part::Whole(Err(error))) => {
                    events.push_str(&failure(&error));
                    return Some((events, (None, None)));
                }
            }
            match parts.try_recv() {
                Ok(next) => part = Some(next),
                Err(_) => return Some((events, (None, Some(parts)))),
            }
        }
    });
    Body::from_stream(futures_util::StreamExt::map(stream, Ok::<_, Infallible>))
}
