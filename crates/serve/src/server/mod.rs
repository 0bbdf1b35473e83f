//! The HTTP server: connections, routes and timeouts, generic over the backend that handles
//! requests.
//!
//! Clients that send or read too slowly are disconnected. If a client disconnects,
//! [`Reply::is_closed`] returns true, so that work for it can stop.

mod connection;
mod reply;
mod routes;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;

pub use reply::{ChatReply, Reply, TextReply};

use crate::openai::{ApiError, ChatRequest, ModelCard, TextRequest};

/// Limits of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of concurrent connections; further ones wait to be accepted.
    pub connections: usize,
    /// Maximum size of a request body, in bytes.
    pub body_bytes: usize,
    /// Timeout for the head of a request, and for an idle connection.
    pub head: Duration,
    /// Timeout for the body of a request.
    pub body: Duration,
    /// Timeout for a whole response.
    pub answer: Duration,
    /// Timeout for a write that makes no progress.
    pub write: Duration,
    /// Whether to accept only requests whose `Host` is a loopback address or `localhost`. This
    /// blocks web pages that resolve their own host name to this server (DNS rebinding).
    pub loopback_hosts_only: bool,
}

impl Default for Limits {
    /// By default, allows any host, 256 connections and bodies of 8 MiB, with timeouts of 30 s, 30
    /// s, 10 min and 30 s.
    fn default() -> Self {
        Self {
            connections: 256,
            body_bytes: 8 << 20,
            head: Duration::from_secs(30),
            body: Duration::from_secs(30),
            answer: Duration::from_mins(10),
            write: Duration::from_secs(30),
            loopback_hosts_only: false,
        }
    }
}

/// API key, sequence number and headers of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The API key: `Authorization: Bearer KEY`.
    pub key: Option<String>,
    /// Sequence number of the request in this process, used for response ids.
    pub number: u64,
    /// Other headers with text values, by lower-case name.
    pub headers: BTreeMap<String, String>,
}

/// Answers requests. Each method is called on its own thread, which may block.
pub trait Completions: Send + Sync + 'static {
    /// Checks the API key of a request before its body is read. By default every key is accepted.
    ///
    /// # Errors
    /// Returns the error to send to the client, such as [`ApiError::unauthorized`].
    fn authorize(&self, key: Option<&str>) -> Result<(), ApiError> {
        let _ = key;
        Ok(())
    }

    /// Returns the models to list.
    fn models(&self) -> Vec<ModelCard>;

    /// Handles a chat request, either immediately or later from another thread to which `reply` was
    /// moved.
    ///
    /// If the request has `stream`, the backend can send chunks, or a whole response that the
    /// server splits into chunks.
    fn chat(&self, call: &Call, request: ChatRequest, reply: ChatReply);

    /// Handles a text request; returns a 404 by default.
    fn text(&self, call: &Call, request: TextRequest, reply: TextReply) {
        let _ = (call, request);
        reply.finish(Err(ApiError::new(404, "/v1/completions is not served here: use /v1/chat/completions")));
    }

    /// Handles a `POST` with JSON to any other path; returns a 404 by default.
    ///
    /// # Errors
    /// Returns the error to send to the client.
    fn post(&self, call: &Call, path: &str, body: &[u8]) -> Result<Value, ApiError> {
        let _ = (call, body);
        Err(ApiError::no_path(path))
    }
}

/// Error when a server cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// Threads cannot be started.
    #[error("cannot start the server's threads: {0}")]
    Threads(#[source] std::io::Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Not,
    /// After running requests.
    Gently,
    Now,
}

/// A running server; dropping it stops it immediately.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: watch::Sender<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on an address (port 0 selects a free port) and serves requests until it is stopped.
    ///
    /// # Errors
    /// Fails if the address cannot be bound or a thread cannot be started.
    pub fn start(
        address: SocketAddr,
        completions: Arc<impl Completions>,
        limits: Limits,
    ) -> Result<Self, ServeError> {
        let bind = |source| ServeError::Bind { address, source };
        let listener = TcpListener::bind(address).map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        listener.set_nonblocking(true).map_err(bind)?;
        // Answering may block, so each request has a thread.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(limits.connections.max(1))
            .build()
            .map_err(ServeError::Threads)?;
        let (stop, stopped) = watch::channel(Stop::Not);
        let router = routes::router(completions, limits);
        let serve = move || {
            runtime.block_on(connection::accept(listener, router, limits, stopped));
            // Blocked answers must not keep the program alive.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("server".to_owned()).spawn(serve);
        Ok(Self { address, stop, thread: Some(thread.map_err(ServeError::Threads)?) })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the base URL for clients, `http://ADDRESS/v1`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Stops accepting requests, waits up to `grace` for running ones, and closes all connections.
    pub fn stop(mut self, grace: Duration) {
        self.stop.send_replace(Stop::Gently);
        if let Some(thread) = &self.thread {
            let deadline = std::time::Instant::now() + grace;
            while !thread.is_finished() && std::time::Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        self.end();
    }

    fn end(&mut self) {
        self.stop.send_replace(Stop::Now);
        if let Some(thread) = self.thread.take() {
            // The panic message was already printed.
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}
