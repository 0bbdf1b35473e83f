//! HTTP server for any retriever, with Search-R1's protocol: `POST /retrieve`, and `GET /health`.
//!
//! Each open connection has its own thread. Connections beyond the limit get status 503 or are
//! closed.

mod http;

use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use turnwise_retrieval::{RetrievalError, Retriever};

pub use self::http::names_this_machine;
use self::http::{Connection, Reply};
use crate::protocol::{self, Request};

/// Parses bytes as a request's head and body; for the fuzz targets in `fuzz/`.
#[doc(hidden)]
pub fn parse_request(bytes: &[u8]) {
    http::parse_head(bytes);
    let _ = serde_json::from_slice::<Request>(bytes);
}

/// A [`Server`]'s limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    /// Default passages per query.
    pub top_k: usize,
    /// Maximum passages per query.
    pub most_passages: usize,
    /// Maximum queries per request.
    pub most_queries: usize,
    /// Maximum passages per response.
    pub most_results: usize,
    /// Maximum response body in bytes.
    pub largest_answer: usize,
    /// Maximum request body in bytes.
    pub largest_request: usize,
    /// Maximum concurrent connections, not counting those being rejected.
    pub connections: usize,
    /// Timeout for receiving a request, for sending a response, and for finishing active requests
    /// when the server stops.
    pub timeout: Duration,
    /// Maximum idle time of a connection.
    pub idle: Duration,
    /// Whether other machines may reach the server's address.
    pub allow_remote: bool,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            top_k: 3,
            most_passages: 1000,
            most_queries: 4096,
            most_results: 100_000,
            largest_answer: 64 << 20,
            largest_request: 16 << 20,
            connections: 256,
            timeout: Duration::from_secs(30),
            idle: Duration::from_mins(2),
            allow_remote: false,
        }
    }
}

/// Maximum number of connections that are being rejected; further connections are closed.
const MOST_TURNED_AWAY: usize = 32;

/// Timeout for reading a request that will be rejected and for sending the rejection.
const TURNING_AWAY: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    queries: AtomicU64,
    failed: AtomicU64,
    served: AtomicUsize,
    turned_away: AtomicUsize,
    /// Number of requests whose first byte has arrived and that are not answered yet.
    under_way: AtomicUsize,
}

/// A bound server.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    options: ServerOptions,
    counters: Arc<Counters>,
    stop: Arc<AtomicBool>,
}

/// Stops a server from another thread.
#[derive(Clone, Debug)]
pub struct Stopper {
    stop: Arc<AtomicBool>,
    address: SocketAddr,
}

impl Stopper {
    /// Stops accepting connections; active requests are answered within [`ServerOptions::timeout`].
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        // Connecting wakes the waiting server.
        drop(TcpStream::connect_timeout(&self.address, Duration::from_secs(1)));
    }
}

impl Server {
    /// Binds to an address such as `127.0.0.1:8000`; port 0 selects a free port.
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::Setting`] if the address is invalid, in use, or (without
    /// `allow_remote`) reachable by other machines.
    pub fn bind(address: &str, options: ServerOptions) -> Result<Self, RetrievalError> {
        let wrong = |reason: String| RetrievalError::Setting {
            key: "address".to_owned(),
            reason: format!("{address}: {reason}"),
        };
        let addresses: Vec<SocketAddr> = address
            .to_socket_addrs()
            .map_err(|error| wrong(format!("{error}; write it as 127.0.0.1:8000")))?
            .collect();
        if !options.allow_remote && !addresses.iter().all(|address| address.ip().is_loopback()) {
            return Err(wrong(
                "other machines could reach it, and anyone there could read the collection; allow that, or listen at \
                 127.0.0.1"
                    .to_owned(),
            ));
        }
        let listener = TcpListener::bind(addresses.as_slice()).map_err(|error| wrong(error.to_string()))?;
        let address = listener.local_addr().map_err(|error| wrong(error.to_string()))?;
        Ok(Self { listener, address, options, counters: Arc::default(), stop: Arc::default() })
    }

    /// Returns the address with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a handle for stopping the server.
    pub fn stopper(&self) -> Stopper {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(if address.is_ipv4() {
                std::net::Ipv4Addr::LOCALHOST.into()
            } else {
                std::net::Ipv6Addr::LOCALHOST.into()
            });
        }
        Stopper { stop: Arc::clone(&self.stop), address }
    }

    /// Answers requests until [`Stopper::stop`], then waits for active ones up to the timeout.
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::Setting`] if no more connections can be accepted.
    pub fn run(&self, retriever: &Arc<dyn Retriever>) -> Result<(), RetrievalError> {
        let mut failures = 0;
        loop {
            let accepted = self.listener.accept();
            if self.stop.load(Ordering::SeqCst) {
                self.wait_for_answers();
                return Ok(());
            }
            let stream = match accepted {
                Ok((stream, _)) => stream,
                // The client left or no file handle is free; the next attempt may succeed.
                Err(error) => {
                    failures += 1;
                    if failures > 1000 {
                        return Err(RetrievalError::Setting {
                            key: "address".to_owned(),
                            reason: format!("{}: {error}", self.address),
                        });
                    }
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                }
            };
            failures = 0;
            let served = Place::take(&self.counters, |counters| &counters.served, self.options.connections);
            let busy = served.is_none();
            let place = served
                .or_else(|| Place::take(&self.counters, |counters| &counters.turned_away, MOST_TURNED_AWAY));
            let Some(place) = place else { continue };
            let worker = Worker {
                retriever: Arc::clone(retriever),
                options: self.options,
                is_local: self.address.ip().is_loopback(),
                counters: Arc::clone(&self.counters),
                stop: Arc::clone(&self.stop),
            };
            let started = std::thread::Builder::new().name("retrieve".to_owned()).spawn(move || {
                let _place = place;
                if busy {
                    worker.turn_away(stream);
                } else {
                    worker.serve(stream);
                }
            });
            // Without a thread the connection closes, and the client retries.
            drop(started);
        }
    }

    /// Waits for active requests, but only up to the timeout, in case a search or client hangs.
    fn wait_for_answers(&self) {
        let until = Instant::now() + self.options.timeout;
        while self.counters.under_way.load(Ordering::SeqCst) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

type Count = fn(&Counters) -> &AtomicUsize;

struct Place(Arc<Counters>, Count);

impl Place {
    /// Increments a counter unless it has reached `most`. Only one thread increments the counters.
    fn take(counters: &Arc<Counters>, count: Count, most: usize) -> Option<Self> {
        if count(counters).fetch_add(1, Ordering::SeqCst) < most {
            return Some(Self(Arc::clone(counters), count));
        }
        count(counters).fetch_sub(1, Ordering::SeqCst);
        None
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        (self.1)(&self.0).fetch_sub(1, Ordering::SeqCst);
    }
}

/// Counts a request from its first byte until its answer.
struct UnderWay<'a>(&'a Counters);

impl<'a> UnderWay<'a> {
    fn new(counters: &'a Counters) -> Self {
        counters.under_way.fetch_add(1, Ordering::SeqCst);
        Self(counters)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Worker {
    retriever: Arc<dyn Retriever>,
    options: ServerOptions,
    /// True if the server listens on a loopback address.
    is_local: bool,
    counters: Arc<Counters>,
    stop: Arc<AtomicBool>,
}

impl Worker {
    fn turn_away(&self, stream: TcpStream) {
        let mut connection = Connection::new(stream, &self.options).until(Instant::now() + TURNING_AWAY);
        // A client that is still writing would see a broken connection.
        let _ = connection.wait() && connection.read().is_ok();
        let mut connection = connection.until(Instant::now() + TURNING_AWAY);
        let _ = connection.send(&Reply::detail(503, "too many connections; try again").after(1), false);
    }

    fn serve(&self, stream: TcpStream) {
        let mut connection = Connection::new(stream, &self.options);
        while connection.wait() {
            let _under_way = UnderWay::new(&self.counters);
            let (reply, keep) = match connection.read() {
                Ok(request) => {
                    let keep = request.keep && !self.stop.load(Ordering::SeqCst);
                    (self.reply(&request), keep)
                }
                // The rest of an invalid request cannot be separated from the next.
                Err(reply) => (reply, false),
            };
            if connection.send(&reply, keep).is_err() || !keep {
                return;
            }
        }
    }

    fn reply(&self, request: &http::Request) -> Reply {
        if self.is_local && http::is_foreign(request) {
            return Reply::detail(
                403,
                "this server answers programs of this machine, and no web pages of others",
            );
        }
        match (request.method.as_str(), request.path.as_str()) {
            ("POST", "/retrieve") => self.retrieve(&request.body),
            ("GET" | "HEAD", "/" | "/health") => {
                let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
                let counters = &self.counters;
                Reply::json(&json!({
                    "status": "ok",
                    "requests": count(&counters.requests),
                    "queries": count(&counters.queries),
                    "failed": count(&counters.failed),
                }))
            }
            (_, "/retrieve" | "/" | "/health") => Reply::detail(405, "Method Not Allowed"),
            _ => Reply::detail(404, "Not Found"),
        }
    }

    fn retrieve(&self, body: &[u8]) -> Reply {
        let request: Request = match serde_json::from_slice(body) {
            Ok(request) => request,
            Err(error) => return Reply::detail(422, &format!("the body is no request: {error}")),
        };
        let top_k = request.top_k.unwrap_or(self.options.top_k);
        let (queries, options) = (&request.queries, &self.options);
        if queries.len() > options.most_queries || top_k > options.most_passages {
            return Reply::detail(
                422,
                &format!(
                    "`queries` has {} entries and `topk` is {top_k}: at most {} queries and {} passages are answered",
                    queries.len(),
                    options.most_queries,
                    options.most_passages
                ),
            );
        }
        let results = queries.len().saturating_mul(top_k);
        if results > options.most_results {
            return Reply::detail(
                422,
                &format!(
                    "`queries` times `topk` asks for {results} passages, and an answer has at most {}: send fewer queries at \
                     once, or a smaller topk",
                    options.most_results
                ),
            );
        }
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        self.counters.queries.fetch_add(queries.len() as u64, Ordering::Relaxed);
        let texts: Vec<&str> = queries.iter().map(String::as_str).collect();
        let searched =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.retriever.search(&texts, top_k)));
        let failed = |status: u16, reason: &str| {
            self.counters.failed.fetch_add(1, Ordering::Relaxed);
            Reply::detail(status, reason)
        };
        match searched {
            Ok(Ok(lists)) => {
                match protocol::answer_within(&lists, request.return_scores, options.largest_answer) {
                    Ok(Some(body)) => Reply::bytes(body),
                    Ok(None) => Reply::detail(
                        422,
                        &format!(
                            "the passages have more than {} bytes, which is the most of an answer: send fewer `queries` at \
                             once, or a smaller `topk`",
                            options.largest_answer
                        ),
                    ),
                    Err(error) => failed(500, &error.to_string()),
                }
            }
            Ok(Err(error)) if error.is_transient() => failed(503, &error.to_string()).after(1),
            Ok(Err(error)) => failed(500, &error.to_string()),
            Err(_) => failed(500, "the search ended by a panic"),
        }
    }
}
