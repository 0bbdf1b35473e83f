//! An OpenAI-compatible server for any backend ([`Completions`]), such as the native sampling
//! engine or a gateway that records an agent's requests. No public function is async.
//!
//! Internal to the workspace: nothing here is stable, and the modules are hidden from the
//! documentation.
//!
//! ```
//! use std::net::SocketAddr;
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use turnwise_serve::openai::{ApiError, ChatRequest, ChatResponse, Choice, ModelCard, ResponseMessage};
//! use turnwise_serve::{Call, ChatReply, Completions, Limits, Server};
//!
//! /// Answers every conversation with its number of messages.
//! struct Counter;
//!
//! impl Completions for Counter {
//!     fn models(&self) -> Vec<ModelCard> {
//!         vec![ModelCard::new("counter")]
//!     }
//!
//!     fn chat(&self, _call: &Call, request: ChatRequest, reply: ChatReply) {
//!         let count = request.messages.len().to_string();
//!         let choice = Choice::new(0, ResponseMessage::text(count), "stop");
//!         reply.finish(Ok(ChatResponse::new("chatcmpl-1", &request.model, vec![choice])));
//!     }
//! }
//!
//! let server = Server::start(SocketAddr::from(([127, 0, 0, 1], 0)), Arc::new(Counter), Limits::default())?;
//! assert!(server.base_url().starts_with("http://127.0.0.1:"));
//! server.stop(Duration::from_secs(1));
//! # Ok::<(), turnwise_serve::ServeError>(())
//! ```

#[doc(hidden)]
pub mod engine;
#[doc(hidden)]
pub mod openai;
#[doc(hidden)]
pub mod server;

pub use server::{Call, ChatReply, Completions, Limits, Reply, ServeError, Server, TextReply};
