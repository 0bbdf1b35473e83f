//! The server: connections, routes and deadlines, generic over the backend that answers requests.
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
    /// Maximum concurrent connections; further ones wait to be accepted.
    pub connections: usize,
    /// Maximum size of a request's body, in bytes.
    pub body_bytes: usize,
    /// Time limit for the head of a request, and for an idle connection.
    pub head: Duration,
    /// Time limit for a request's body.
    pub body: Duration,
    /// Time limit for a whole answer.
    pub answer: Duration,
    /// Time limit for a write without progress.
    pub write: Duration,
    /// Accept requests only if their `Host` is a loopback address or `localhost`. This rejects web
    /// pages that resolve their host name to this server (DNS rebinding).
    pub loopback_hosts_only: bool,
}

impl Default for Limits {
    /// Returns limits of 256 connections, 8 MiB, 30 s, 30 s, 10 min and 30 s, for any host.
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

/// A request's key, number and headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The API key: `Authorization: Bearer KEY`.
    pub key: Option<String>,
    /// Number of the request, unique in this process, for ids of answers.
    pub number: u64,
    /// Other text headers, by lower-case name.
    pub headers: BTreeMap<String, String>,
}

/// Answers requests. Each method call runs on its own thread, which may block.
pub trait Completions: Send + Sync + 'static {
    /// Checks the API key of a request before its body is read. By default every key is accepted.
    ///
    /// # Errors
    /// Returns the error for the client, such as [`ApiError::unauthorized`].
    fn authorize(&self, key: Option<&str>) -> Result<(), ApiError> {
        let _ = key;
        Ok(())
    }

    /// Returns the served models.
    fn models(&self) -> Vec<ModelCard>;

    /// Answers a chat request, either at once or later from another thread to which `reply` was
    /// moved.
    ///
    /// A request with `stream` may be answered in chunks or as a whole, which the server splits
    /// into chunks.
    fn chat(&self, call: &Call, request: ChatRequest, reply: ChatReply);

    /// Answers a text request; by default with a 404.
    fn text(&self, call: &Call, request: TextRequest, reply: TextReply) {
        let _ = (call, request);
        reply.finish(Err(ApiError::new(404, "/v1/completions is not served here: use /v1/chat/completions")));
    }

    /// Answers a `POST` to another path with JSON; by default with a 404.
    ///
    /// # Errors
    /// Returns the error for the client.
    fn post(&self, call: &Call, path: &str, body: &[u8]) -> Result<Value, ApiError> {
        let _ = (call, body);
        Err(ApiError::no_path(path))
    }
}

/// Why a server cannot be started.
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

/// A running server, stopped immediately when dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: watch::Sender<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on an address (port 0 selects a free port) and answers until it is stopped.
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

    /// Returns the bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the base URL for clients, `http://ADDRESS/v1`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Stops accepting requests, waits for running ones for at most `grace`, and closes all
    /// connections.
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
