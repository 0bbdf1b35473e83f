//! A server with scripted answers, and requests to it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use serde_json::Value;
use turnwise_serve::openai::{
    ApiError, ChatChunk, ChatRequest, ChatResponse, Choice, ChunkChoice, Delta, ModelCard, ResponseMessage,
    Usage,
};
use turnwise_serve::{Call, ChatReply, Completions, Limits, Server};

/// Answers depend on the last message: `stream` sends chunks until the client disconnects, `never`
/// keeps the reply, `lose` drops it, `panic` panics; other words are repeated.
pub(crate) struct Scripted {
    /// Receives the number of chunks of a stream whose client disconnected.
    pub(crate) gone: Sender<usize>,
    pub(crate) key: Option<&'static str>,
}

impl Completions for Scripted {
    fn authorize(&self, key: Option<&str>) -> Result<(), ApiError> {
        match self.key {
            Some(wanted) if key != Some(wanted) => Err(ApiError::unauthorized("a wrong key")),
            _ => Ok(()),
        }
    }

    fn models(&self) -> Vec<ModelCard> {
        vec![ModelCard::new("org/scripted")]
    }

    fn chat(&self, call: &Call, request: ChatRequest, reply: ChatReply) {
        let word = request.messages.last().and_then(|message| message.content.clone()).unwrap_or_default();
        match word.as_str() {
            "stream" => {
                let mut sent = 0;
                while reply.chunk(chunk(&"x".repeat(1000))) {
                    sent += 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
                self.gone.send(sent).unwrap();
            }
            "never" => {
                while !reply.is_closed() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                self.gone.send(0).unwrap();
            }
            "two" => {
                reply.chunk(chunk("a"));
                reply.chunk(chunk("b"));
                reply.end();
            }
            "lose" => drop(reply),
            "lose later" => drop(reply.chunk(chunk("a"))),
            "panic" => panic!("as asked"),
            _ => {
                let choice = Choice::new(0, ResponseMessage::text(word), "stop");
                let id = format!("chatcmpl-{}", call.number);
                let usage = Usage::new(3, 2, 1);
                reply.finish(Ok(ChatResponse {
                    usage,
                    ..ChatResponse::new(id, &request.model, vec![choice])
                }));
            }
        }
    }

    fn post(&self, call: &Call, path: &str, body: &[u8]) -> Result<Value, ApiError> {
        match path {
            "/v1/reward" => Ok(serde_json::json!({ "key": call.key, "bytes": body.len() })),
            _ => Err(ApiError::new(404, "no such path")),
        }
    }
}

fn chunk(text: &str) -> ChatChunk {
    let delta = Delta { content: Some(text.to_owned()), ..Delta::default() };
    let choice = ChunkChoice { index: 0, delta, logprobs: None, finish_reason: None, token_ids: None };
    ChatChunk::new("chatcmpl-0", 0, "org/scripted", vec![choice])
}

/// Starts a scripted server; the receiver gets the chunk counts of streams whose clients
/// disconnected.
pub(crate) fn start(limits: Limits, key: Option<&'static str>) -> (Server, std::sync::mpsc::Receiver<usize>) {
    let (gone, receiver) = channel();
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    (Server::start(address, Arc::new(Scripted { gone, key }), limits).unwrap(), receiver)
}

/// Returns status and body of a request: a `POST` if there is a body.
pub(crate) fn ask(server: &Server, path: &str, body: Option<&str>, key: Option<&str>) -> (u16, String) {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let url = format!("http://{}{path}", server.address());
    let authorization = format!("Bearer {}", key.unwrap_or("none"));
    let mut response = match body {
        None => agent.get(&url).header("Authorization", &authorization).call().unwrap(),
        Some(body) => agent
            .post(&url)
            .header("Authorization", &authorization)
            .header("Content-Type", "application/json")
            .send(body)
            .unwrap(),
    };
    (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
}

/// Returns status and body of a chat request with one message and additional fields.
pub(crate) fn chat(server: &Server, word: &str, more: &str) -> (u16, String) {
    ask(server, "/v1/chat/completions", Some(&body(word, more)), None)
}

/// Returns the body of a request with one message.
pub(crate) fn body(word: &str, more: &str) -> String {
    format!(r#"{{"model": "m", "messages": [{{"role": "user", "content": "{word}"}}]{more}}}"#)
}
