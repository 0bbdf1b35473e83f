//! HTTP client of Search-R1's protocol.

use std::io::Read as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use turnwise_core::{Purpose, Seed, backoff};
use turnwise_retrieval::{Hit, RetrievalError, Retriever};
use turnwise_settings::AddressError;

use crate::protocol::read_answer;
use crate::settings::RequestKey;

const PATH: &str = "/retrieve";

/// An [`HttpRetriever`]'s settings.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpOptions {
    /// Timeout of a request, from connecting to the last byte.
    pub timeout: Duration,
    /// Retries after a transient failure, each on the next server.
    pub retries: u32,
    /// Delay after each server has been tried once without success; it doubles with each further
    /// round over the servers.
    pub backoff: Duration,
    /// Maximum delay, also for a server's `Retry-After`.
    pub backoff_max: Duration,
    /// Maximum response in bytes.
    pub largest_answer: u64,
    /// JSON key of the queries.
    pub request_key: RequestKey,
    /// Whether servers may be on other machines.
    pub allow_remote: bool,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_mins(1),
            retries: 3,
            backoff: Duration::from_millis(500),
            backoff_max: Duration::from_secs(10),
            largest_answer: 64 << 20,
            request_key: RequestKey::Queries,
            allow_remote: false,
        }
    }
}

/// Sends requests in turn to several servers that have the same collection. A failed request is
/// retried on the next server.
#[derive(Debug)]
pub struct HttpRetriever {
    agent: ureq::Agent,
    servers: Vec<String>,
    options: HttpOptions,
    requests: AtomicU64,
}

struct Failed {
    error: RetrievalError,
    wait: Option<Duration>,
}

impl From<RetrievalError> for Failed {
    fn from(error: RetrievalError) -> Self {
        Self { error, wait: None }
    }
}

impl HttpRetriever {
    /// Creates a client for addresses such as `http://127.0.0.1:8000/retrieve` (the default path).
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::Setting`] for invalid addresses, and for addresses of other
    /// machines unless they are allowed.
    pub fn new(servers: &[String], options: HttpOptions) -> Result<Self, RetrievalError> {
        let setting = |reason: String| RetrievalError::Setting { key: "servers".to_owned(), reason };
        if servers.is_empty() {
            return Err(setting(
                "name at least one server, such as \"http://127.0.0.1:8000/retrieve\"".into(),
            ));
        }
        let servers = servers
            .iter()
            .enumerate()
            .map(|(index, server)| address(index, server, options.allow_remote).map_err(setting))
            .collect::<Result<_, _>>()?;
        let settings = ureq::Agent::config_builder()
            .timeout_global(Some(options.timeout))
            .http_status_as_error(false)
            .max_redirects(0)
            // Queries go directly to the named server.
            .proxy(None)
            .max_idle_connections_per_host(16)
            .build();
        Ok(Self { agent: settings.into(), servers, options, requests: AtomicU64::new(0) })
    }

    fn ask(&self, server: &str, body: &str, queries: usize, top_k: usize) -> Result<Vec<Vec<Hit>>, Failed> {
        let request = self.agent.post(server).header("content-type", "application/json");
        let mut response = request.send(body).map_err(|error| self.failure(server, &error))?;
        let status = response.status().as_u16();
        let wait = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        if status != 200 {
            let mut text = Vec::new();
            // If the connection breaks, a part suffices.
            let _ = response.body_mut().as_reader().take(4096).read_to_end(&mut text);
            let body: String = String::from_utf8_lossy(&text).chars().take(200).collect();
            let error = RetrievalError::Status { server: server.to_owned(), status, body };
            return Err(Failed { error, wait: wait.map(Duration::from_secs) });
        }
        let limit = self.options.largest_answer;
        let read = response.body_mut().with_config().limit(limit).read_to_vec();
        let answer = read.map_err(|error| self.failure(server, &error))?;
        read_answer(&answer, queries, top_k)
            .map_err(|reason| RetrievalError::Answer { server: server.to_owned(), reason }.into())
    }

    fn failure(&self, server: &str, error: &ureq::Error) -> RetrievalError {
        let server = server.to_owned();
        match error {
            ureq::Error::Timeout(_) => self.timeout(server),
            ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => self.timeout(server),
            ureq::Error::BodyExceedsLimit(limit) => RetrievalError::Answer {
                server,
                reason: format!(
                    "it has more than {limit} bytes; ask for fewer passages or fewer queries at once"
                ),
            },
            error => RetrievalError::Unreachable { server, reason: error.to_string() },
        }
    }

    fn timeout(&self, server: String) -> RetrievalError {
        RetrievalError::Timeout { server, seconds: format!("{}", self.options.timeout.as_secs_f64()) }
    }

    /// Returns the delay after `round` rounds over the servers, shortened by up to half, by an
    /// amount that depends on the request. If a server `asked` for a longer delay, that delay is
    /// used. Both delays are limited to `backoff_max`.
    fn pause(&self, request: u64, round: u32, asked: Option<Duration>) -> Duration {
        let HttpOptions { backoff: first, backoff_max: longest, .. } = self.options;
        let share = Seed::derive(0, Purpose::Environment, &[request, u64::from(round)]).rng().uniform();
        let own = backoff(first.as_secs_f64(), longest.as_secs_f64(), round, share);
        own.max(asked.unwrap_or_default()).min(self.options.backoff_max)
    }
}

/// Normalizes an address. The error omits addresses that may contain a password.
fn address(index: usize, server: &str, allow_remote: bool) -> Result<String, String> {
    let wrong = |reason: &str| format!("number {index} {reason}; write it as http://127.0.0.1:8000/retrieve");
    match turnwise_settings::check_address(server) {
        Err(AddressError::Credentials) => return Err(wrong("must hold no user name or password")),
        Err(error @ AddressError::Server) => return Err(format!("number {index} {error}")),
        Err(AddressError::Scheme) | Ok(()) => {}
    }
    let uri: ureq::http::Uri = server.parse().map_err(|_| wrong("is no address"))?;
    if uri.scheme_str() != Some("http") {
        return Err(wrong("is not plain http, which is all that is spoken"));
    }
    let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("has no host"))?;
    if uri.query().is_some() {
        return Err(wrong("has a query"));
    }
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let here =
        bare == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    if !here && !allow_remote {
        return Err(format!(
            "`{server}` is another machine, and queries would leave this one; set allow_remote = true if they may"
        ));
    }
    let trimmed = server.trim_end_matches('/');
    Ok(if uri.path() == "/" { format!("{trimmed}{PATH}") } else { trimmed.to_owned() })
}

impl Retriever for HttpRetriever {
    fn search(&self, queries: &[&str], top_k: usize) -> Result<Vec<Vec<Hit>>, RetrievalError> {
        if queries.is_empty() || top_k == 0 {
            return Ok(vec![Vec::new(); queries.len()]);
        }
        let key = self.options.request_key.name();
        let body = json!({key: queries, "topk": top_k, "return_scores": true}).to_string();
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        let count = self.servers.len();
        let mut waits: Option<Duration> = None;
        let mut tried: u32 = 0;
        loop {
            let server = &self.servers[(request as usize).wrapping_add(tried as usize) % count];
            let failed = match self.ask(server, &body, queries.len(), top_k) {
                Ok(lists) => return Ok(lists),
                Err(failed) => failed,
            };
            if tried >= self.options.retries || !failed.error.is_transient() {
                return Err(failed.error);
            }
            waits = waits.max(failed.wait);
            tried += 1;
            if (tried as usize).is_multiple_of(count) {
                std::thread::sleep(self.pause(request, tried / count as u32, waits.take()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        for (given, remote, asked) in [
            ("http://127.0.0.1:8000", false, "http://127.0.0.1:8000/retrieve"),
            ("http://localhost:1/", false, "http://localhost:1/retrieve"),
            ("http://[::1]:9/x/y", false, "http://[::1]:9/x/y"),
            ("http://node7:8000/retrieve", true, "http://node7:8000/retrieve"),
        ] {
            assert_eq!(address(0, given, remote).unwrap(), asked);
        }
        for (wrong, expected) in [
            ("http://node7:8000", "another machine"),
            ("http://10.0.0.1:8000", "allow_remote"),
            ("https://127.0.0.1", "number 3 is not plain http"),
            ("127.0.0.1:8000", "http://127.0.0.1:8000/retrieve"),
            ("", "number 3 is no address"),
            ("http://127.0.0.1:8000/?k=1", "has a query"),
            ("http://127.0.0.1:port", "must name a server"),
            ("http://me:secret@127.0.0.1:8000", "must hold no user name or password"),
            ("me:secret@127.0.0.1:8000", "number 3"),
        ] {
            let error = address(3, wrong, false).unwrap_err();
            assert!(error.contains(expected) && !error.contains("secret"), "{wrong}: {error}");
        }
        assert!(HttpRetriever::new(&[], HttpOptions::default()).is_err());
    }

    #[test]
    fn waits_double_within_bounds() {
        let options = HttpOptions {
            backoff: Duration::from_millis(500),
            backoff_max: Duration::from_secs(3),
            ..HttpOptions::default()
        };
        let client = HttpRetriever::new(&["http://127.0.0.1:1".to_owned()], options).unwrap();
        for (round, full) in [(1, 0.5), (2, 1.0), (3, 2.0), (4, 3.0), (99, 3.0)] {
            let pause = client.pause(7, round, None).as_secs_f64();
            assert!((0.5 * full..=full).contains(&pause), "{round}: {pause}");
            assert_ne!(client.pause(8, round, None).as_secs_f64(), pause);
        }
        assert_eq!(client.pause(7, 1, Some(Duration::from_secs(2))), Duration::from_secs(2));
        assert_eq!(client.pause(7, 1, Some(Duration::from_mins(10))), Duration::from_secs(3));
    }
}
