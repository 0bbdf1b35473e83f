//! HTTP endpoint for completions (`POST /v1/chat/completions`), the model list (`GET /v1/models`)
//! and reward reports (`POST /v1/reward`, see [`crate::rewards`]).
//!
//! Each API key identifies an episode. A request with the key of an ended episode gets status 410,
//! and one with an unknown key 401; OpenAI's clients retry neither status. A request's
//! `temperature`, `top_p` and `seed` are ignored.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use turnwise_core::{ChatMessage, FinishReason, MessageCall, digest};
use turnwise_serve::openai::{
    self, ApiError, ChatRequest, ChatResponse, Choice, ModelCard, ResponseMessage, ToolChoice, Usage,
};
use turnwise_serve::{Call, ChatReply, Completions, Limits, ServeError, Server};

use crate::inbox::{Answer, Asked, Client, Inbox, RetryMark};
use crate::rewards::Report;

/// Model name in `/v1/models`.
pub const MODEL: &str = "policy";

/// Header with the agent's name; without it, the request's `model` is the name.
pub(crate) const AGENT_HEADER: &str = "x-turnwise-agent";

/// Header with the name of the current state, for credit methods that compare states; a request
/// without it may give `metadata.state` in its body.
pub(crate) const STATE_HEADER: &str = "x-turnwise-state";

/// Number of ended episodes whose keys are remembered, to distinguish late requests from wrong
/// keys.
const REMEMBERED: usize = 4096;

#[derive(Default)]
struct Episodes {
    open: HashMap<String, Arc<Inbox>>,
    ended: VecDeque<String>,
    next: u64,
}

#[derive(Default)]
struct Table(Mutex<Episodes>);

fn ended() -> ApiError {
    ApiError::new(410, "the episode has ended").with_code("episode_ended")
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, Episodes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, key: Option<&str>) -> Result<Arc<Inbox>, ApiError> {
        let key = key.unwrap_or_default();
        let episodes = self.lock();
        if let Some(inbox) = episodes.open.get(key) {
            return Ok(Arc::clone(inbox));
        }
        if episodes.ended.iter().any(|ended| ended == key) {
            return Err(ended());
        }
        Err(ApiError::unauthorized(
            "the API key names no episode; use the key that the agent was started with",
        ))
    }
}

impl Completions for Table {
    fn authorize(&self, key: Option<&str>) -> Result<(), ApiError> {
        self.find(key).map(|_| ())
    }

    fn models(&self) -> Vec<ModelCard> {
        vec![ModelCard::new(MODEL)]
    }

    fn chat(&self, call: &Call, request: ChatRequest, reply: ChatReply) {
        let mark = mark(call, &request);
        let model = request.model.clone();
        let found = self.find(call.key.as_deref()).and_then(|inbox| Ok((inbox, asked(call, request)?)));
        match found {
            Ok((inbox, asked)) => inbox.submit(asked, mark, Box::new(Waiting { reply, model })),
            Err(error) => reply.finish(Err(error)),
        }
    }

    fn post(&self, call: &Call, path: &str, body: &[u8]) -> Result<Value, ApiError> {
        if path != "/v1/reward" {
            return Err(ApiError::no_path(path));
        }
        let inbox = self.find(call.key.as_deref())?;
        let report = Report::from_json(body).map_err(|reason| ApiError::new(400, reason))?;
        inbox.report(report, "posted").map_err(|reason| ApiError::new(400, reason))?;
        Ok(json!({"ok": true}))
    }
}

struct Waiting {
    reply: ChatReply,
    model: String,
}

impl Client for Waiting {
    fn is_gone(&self) -> bool {
        self.reply.is_closed()
    }

    fn finish(self: Box<Self>, answer: Option<&Answer>) {
        let model = &self.model;
        self.reply.finish(answer.map(|answer| response(answer, model)).ok_or_else(ended));
    }
}

fn response(answer: &Answer, model: &str) -> ChatResponse {
    let reply = &answer.reply;
    let finish = match reply.finish {
        FinishReason::Stop if !reply.calls.is_empty() => "tool_calls",
        FinishReason::Stop => "stop",
        FinishReason::Length | FinishReason::Context => "length",
    };
    let call = |call: &MessageCall| {
        openai::MessageCall::new(call.id.as_str(), call.name.as_str(), call.arguments.as_str())
    };
    let mut message = ResponseMessage::text(reply.content.as_str());
    message.tool_calls = reply.calls.iter().map(call).collect();
    if reply.content.is_empty() && !reply.calls.is_empty() {
        message.content = None;
    }
    let choice = Choice::new(0, message, finish);
    let mut response = ChatResponse::new(answer.id.as_str(), model, vec![choice]);
    response.usage = Usage::new(reply.prompt_tokens, reply.response_tokens, 0);
    response
}

fn asked(call: &Call, request: ChatRequest) -> Result<Asked, ApiError> {
    let ChatRequest { model, messages, tools, tool_choice, sampling, metadata, .. } = request;
    if sampling.n != 1 {
        return Err(ApiError::field(
            "n",
            "`n` must be 1: each answer is a separate turn; send several requests",
        ));
    }
    if messages.iter().any(|message| !message.images.is_empty()) {
        let reason = "`messages`: policies in training read no pictures yet; send text";
        return Err(ApiError::unsupported("messages", reason));
    }
    Ok(Asked {
        messages: messages.into_iter().map(message).collect(),
        // The choice `required` is not enforced; rewards teach the policy to call tools.
        tools: if tool_choice == ToolChoice::None { Vec::new() } else { tools },
        agent: call.headers.get(AGENT_HEADER).cloned().unwrap_or(model),
        max_tokens: sampling.max_tokens,
        stop: sampling.stop,
        state: call.headers.get(STATE_HEADER).cloned().or_else(|| metadata.get("state").map(words)),
    })
}

fn words(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn message(message: openai::ChatMessage) -> ChatMessage {
    let openai::ChatMessage { role, content, tool_calls, tool_call_id, .. } = message;
    let call = |call: openai::MessageCall| MessageCall {
        id: call.id,
        name: call.function.name,
        arguments: call.function.arguments,
    };
    ChatMessage {
        role: if role == "developer" { "system".to_owned() } else { role },
        content: content.unwrap_or_default(),
        calls: tool_calls.into_iter().map(call).collect(),
        call_id: tool_call_id,
    }
}

fn mark(call: &Call, request: &ChatRequest) -> RetryMark {
    if let Some(key) = call.headers.get("idempotency-key") {
        return RetryMark { digest: format!("key {key}"), may_repeat: true };
    }
    let digest = digest([format!("{request:?}").as_bytes()]);
    let first = call.headers.get("x-stainless-retry-count").is_some_and(|count| count.trim() == "0");
    RetryMark { digest, may_repeat: !first }
}

/// A running HTTP endpoint, which stops when dropped.
pub struct Gateway {
    server: Server,
    table: Arc<Table>,
    random: RandomState,
}

impl Gateway {
    /// Starts the endpoint; port 0 selects a free port.
    ///
    /// # Errors
    /// Fails if the address cannot be bound or a thread cannot be started.
    pub fn start(listen: SocketAddr) -> Result<Self, ServeError> {
        let table = Arc::new(Table::default());
        let limits = Limits {
            connections: 1024,
            body_bytes: 32 << 20,
            // A reply may wait for sampling and updates.
            answer: Duration::from_hours(24),
            loopback_hosts_only: listen.ip().is_loopback(),
            ..Limits::default()
        };
        let server = Server::start(listen, Arc::clone(&table), limits)?;
        Ok(Self { server, table, random: RandomState::new() })
    }

    /// Returns the base URL for OpenAI clients.
    pub fn base_url(&self) -> String {
        self.server.base_url()
    }

    /// Registers an episode's inbox and returns its API key.
    pub fn open(&self, inbox: Arc<Inbox>) -> String {
        let mut episodes = self.table.lock();
        let number = episodes.next;
        episodes.next += 1;
        // Anyone with a key can report rewards.
        let random = [0_u8, 1].map(|part| self.random.hash_one((number, part)));
        let key = format!("turnwise-{number}-{:016x}{:016x}", random[0], random[1]);
        episodes.open.insert(key.clone(), inbox);
        key
    }

    /// Ends an episode.
    pub fn close(&self, key: &str) {
        let mut episodes = self.table.lock();
        if let Some(inbox) = episodes.open.remove(key) {
            episodes.ended.push_back(key.to_owned());
            if episodes.ended.len() > REMEMBERED {
                episodes.ended.pop_front();
            }
            drop(episodes);
            inbox.end();
        }
    }
}
