//! The HTTP server, generic over the backend.
//!
//! Clients that send or read too slowly are disconnected. If a client has left,
//! [`Reply::is_closed`] tells the backend to stop working for it.

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

/// A server's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum concurrent connections; further ones wait.
    pub connections: usize,
    /// Maximum request body in bytes.
    pub body_bytes: usize,
    /// Timeout for request heads and idle connections.
    pub head: Duration,
    /// Timeout for request bodies.
    pub body: Duration,
    /// Timeout for responses.
    pub answer: Duration,
    /// Maximum time for which a write may make no progress.
    pub write: Duration,
    /// Whether to accept only requests whose `Host` is a loopback address, to prevent DNS rebinding
    /// by web pages.
    pub loopback_hosts_only: bool,
}

impl Default for Limits {
    /// Allows any host, 256 connections and bodies of 8 MiB; the timeouts are 10 min for responses,
    /// otherwise 30 s.
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

/// A request's API key, number and headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// API key from `Authorization: Bearer KEY`.
    pub key: Option<String>,
    /// Unique number of the request in this process, for response ids.
    pub number: u64,
    /// All text headers except `Authorization`, by lower-case name.
    pub headers: BTreeMap<String, String>,
}

/// Answers requests; each call has its own thread, which may block.
pub trait Completions: Send + Sync + 'static {
    /// Checks an API key before the body is read. By default, accepts all keys, and requests
    /// without one.
    ///
    /// # Errors
    /// Returns the error that the client gets, such as [`ApiError::unauthorized`].
    fn authorize(&self, key: Option<&str>) -> Result<(), ApiError> {
        let _ = key;
        Ok(())
    }

    /// Returns the models to list.
    fn models(&self) -> Vec<ModelCard>;

    /// Handles a chat request at once, or later by moving `reply` to another thread. The response
    /// to a streaming request may be sent whole; the server then splits it into chunks.
    fn chat(&self, call: &Call, request: ChatRequest, reply: ChatReply);

    /// Handles a text request. By default, replies with status 404.
    fn text(&self, call: &Call, request: TextRequest, reply: TextReply) {
        let _ = (call, request);
        reply.finish(Err(ApiError::new(404, "/v1/completions is not served here: use /v1/chat/completions")));
    }

    /// Handles a JSON `POST` to another path. By default, replies with status 404.
    ///
    /// # Errors
    /// Returns the error that the client gets.
    fn post(&self, call: &Call, path: &str, body: &[u8]) -> Result<Value, ApiError> {
        let _ = (call, body);
        Err(ApiError::no_path(path))
    }
}

/// Error from starting a server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Address.
        address: SocketAddr,
        /// Operating system error.
        source: std::io::Error,
    },
    /// A thread failed to start.
    #[error("cannot start the server's threads: {0}")]
    Threads(#[source] std::io::Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Not,
    /// Stop once the running requests are answered.
    Gently,
    Now,
}

/// A running server; stops immediately when dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: watch::Sender<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves requests at an address; port 0 selects a free port.
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

    /// Returns the listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns `http://ADDRESS/v1`.
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
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}
