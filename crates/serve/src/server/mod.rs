//! The server: connections, routes and deadlines, over whoever answers.
//!
//! | file | subject |
//! |---|---|
//! | `connection.rs` | connections with deadlines for reading and writing |
//! | `reply.rs` | sends answers, and reports whether the client still waits |
//! | `routes.rs` | `/v1/chat/completions`, `/v1/completions`, `/v1/models`, `/health` and the routes of whoever answers |
//!
//! A client that is slow to send or to read loses its connection at a deadline. If a client disconnects,
//! [`Reply::is_closed`] returns true, so whoever answers can stop.

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

/// Bounds of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once; more wait to be accepted.
    pub connections: usize,
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// Time for the head of a request, and for which an idle connection is kept.
    pub head: Duration,
    /// Time for a request's body.
    pub body: Duration,
    /// Time for a whole answer.
    pub answer: Duration,
    /// Time in which a client must read something of what is sent.
    pub write: Duration,
    /// Accept requests only if their `Host` is a loopback address or `localhost`. This rejects web pages that point their
    /// own host name at this server (DNS rebinding).
    pub loopback_hosts_only: bool,
}

impl Default for Limits {
    /// 256 connections, 8 MiB, 30 s, 30 s, 10 min, 30 s, every host.
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
    /// Unique id of the request in this process, for ids of answers.
    pub number: u64,
    /// Its other headers that are text, by name in lower case.
    pub headers: BTreeMap<String, String>,
}

/// Whoever answers requests. Methods run on threads that may block, one for each request.
pub trait Completions: Send + Sync + 'static {
    /// Checks the API key of a request before its body is read. By default every key is accepted.
    ///
    /// # Errors
    /// Returns the error for the client, such as [`ApiError::unauthorized`].
    fn authorize(&self, key: Option<&str>) -> Result<(), ApiError> {
        let _ = key;
        Ok(())
    }

    /// Returns the models that are served.
    fn models(&self) -> Vec<ModelCard>;

    /// Answers a chat request: now, or later from another thread, to which `reply` may be sent. A request with `stream`
    /// may be answered in chunks or as a whole, which the server then sends as chunks.
    fn chat(&self, call: &Call, request: ChatRequest, reply: ChatReply);

    /// Answers a text request. By default the answer is a 404.
    fn text(&self, call: &Call, request: TextRequest, reply: TextReply) {
        let _ = (call, request);
        reply.finish(Err(ApiError::new(404, "/v1/completions is not served here: use /v1/chat/completions")));
    }

    /// Answers a `POST` to another path with JSON. By default every other path is a 404.
    ///
    /// # Errors
    /// Returns the error for the client.
    fn post(&self, call: &Call, path: &str, body: &[u8]) -> Result<Value, ApiError> {
        let _ = (call, body);
        Err(ApiError::no_path(path))
    }
}

/// Error of starting a server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// Threads cannot be started.
    #[error("cannot start the server's threads: {0}")]
    Threads(#[source] std::io::Error),
}

/// How a server is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Not,
    /// After the requests in work.
    Gently,
    Now,
}

/// A running server. Dropping it stops it at once.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: watch::Sender<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on an address (port 0: any free one) and answers until it is stopped.
    ///
    /// # Errors
    /// Fails if the address cannot be listened on or a thread cannot be started.
    pub fn start(
        address: SocketAddr,
        completions: Arc<impl Completions>,
        limits: Limits,
    ) -> Result<Self, ServeError> {
        let bind = |source| ServeError::Bind { address, source };
        let listener = TcpListener::bind(address).map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        listener.set_nonblocking(true).map_err(bind)?;
        // Answers may block, one thread each.
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
            // Answers that still block must not keep the program.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("server".to_owned()).spawn(serve);
        Ok(Self { address, stop, thread: Some(thread.map_err(ServeError::Threads)?) })
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the base URL for clients, `http://ADDRESS/v1`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Stops accepting requests, waits for those in work for at most `grace`, and closes all connections.
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
            // A panic of the thread was printed when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}
