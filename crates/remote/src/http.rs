//! HTTP requests with bounded replies.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;

/// Connection timeout. It covers TCP's connection attempts after 1, 3 and 7 s; a longer timeout
/// would only delay the attempt on the next server.
const CONNECT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) content_type: String,
    pub(crate) body: Vec<u8>,
}

#[derive(Debug)]
pub(crate) enum NoClient {
    /// Why the API key is unusable.
    Key(String),
    Build(String),
}

/// Why a request got no reply. Messages contain no addresses.
#[derive(Debug)]
pub(crate) enum HttpError {
    /// Nothing was sent.
    Unreachable(String),
    /// The connection was lost or the reply is invalid.
    Broken(String),
    Timeout,
    /// The reply exceeds this many bytes.
    TooLarge(usize),
}

impl HttpError {
    pub(crate) fn cause(&self) -> String {
        match self {
            Self::Unreachable(reason) | Self::Broken(reason) => reason.clone(),
            Self::Timeout => "no answer in time".into(),
            Self::TooLarge(limit) => format!("an answer of more than {limit} bytes"),
        }
    }

    /// Describes the failure, worded to follow the server's name.
    pub(crate) fn reason(&self, time: Duration) -> String {
        match self {
            Self::Unreachable(_) => format!("cannot be reached: {}", self.cause()),
            Self::Broken(_) | Self::TooLarge(_) => format!("broke off: {}", self.cause()),
            Self::Timeout => format!("did not answer within {} s", time.as_secs_f64()),
        }
    }
}

impl From<reqwest::Error> for HttpError {
    fn from(error: reqwest::Error) -> Self {
        let unsent = error.is_connect() || error.is_builder();
        let cause = deepest_cause(error);
        if unsent { Self::Unreachable(cause) } else { Self::Broken(cause) }
    }
}

/// Returns the root cause ("connection refused"), without address.
fn deepest_cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    let cause = cause.to_string();
    // The rest names the server and certificate.
    if cause.starts_with("invalid peer certificate") || cause.starts_with("certificate not valid for name") {
        return "the server's certificate was refused; is it one that the system trusts, for this server's name?".into();
    }
    cause
}

pub(crate) fn api_key(variable: &str) -> Result<Option<String>, NoClient> {
    turnwise_settings::api_key(variable).map_err(|error| NoClient::Key(error.to_string()))
}

pub(crate) fn secret_header(text: &str) -> Result<HeaderValue, NoClient> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| NoClient::Key("holds a key that no header can carry".into()))?;
    value.set_sensitive(true);
    Ok(value)
}

pub(crate) fn bearer(key: &str) -> Result<HeaderValue, NoClient> {
    secret_header(&format!("Bearer {key}"))
}

/// Whether to use `HTTPS_PROXY` and `NO_PROXY`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Proxies {
    /// Ignores the variables, because a proxy often cannot reach servers on the local network.
    Ignored,
    /// Uses the variables, because a hosted service may only be reachable through a proxy; for a
    /// local service, set `NO_PROXY`.
    OfEnvironment,
}

/// Returns a builder with the settings shared by all clients. Redirects are not followed, so only
/// the configured address gets the API key.
pub(crate) fn client_builder(proxies: Proxies) -> reqwest::ClientBuilder {
    // Required before the first client.
    #[cfg(feature = "tls")]
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder().redirect(Policy::none()).connect_timeout(CONNECT);
    match proxies {
        Proxies::Ignored => builder.no_proxy(),
        Proxies::OfEnvironment => builder,
    }
}

pub(crate) fn build(builder: reqwest::ClientBuilder) -> Result<reqwest::Client, NoClient> {
    builder.build().map_err(|error| NoClient::Build(deepest_cause(error)))
}

pub(crate) async fn send(
    request: reqwest::RequestBuilder,
    timeout: Duration,
    limit: usize,
) -> Result<Reply, HttpError> {
    let answer = async { read(request.send().await?, limit).await };
    tokio::time::timeout(timeout, answer).await.unwrap_or(Err(HttpError::Timeout))
}

pub(crate) async fn read(mut response: reqwest::Response, limit: usize) -> Result<Reply, HttpError> {
    let status = response.status().as_u16();
    let retry_after = header(&response, RETRY_AFTER).parse::<u64>().ok().map(Duration::from_secs);
    let content_type = header(&response, CONTENT_TYPE).to_owned();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > limit {
            return Err(HttpError::TooLarge(limit));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Reply { status, retry_after, content_type, body })
}

fn header(response: &reqwest::Response, name: HeaderName) -> &str {
    response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Converts seconds to a duration; values that a duration cannot represent become `u32::MAX`
/// seconds.
pub(crate) fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(u64::from(u32::MAX)))
}

#[derive(Clone, Debug)]
pub(crate) struct Http {
    client: reqwest::Client,
}

impl Http {
    pub(crate) fn new(key: Option<&str>) -> Result<Self, NoClient> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(key) = key {
            headers.insert(AUTHORIZATION, bearer(key)?);
        }
        Ok(Self { client: build(client_builder(Proxies::Ignored).default_headers(headers))? })
    }

    pub(crate) async fn post(
        &self,
        url: &str,
        session: Option<(&'static str, &str)>,
        body: Vec<u8>,
        (timeout, limit): (Duration, usize),
    ) -> Result<Reply, HttpError> {
        let mut request = self.client.post(url).body(body);
        if let Some((name, value)) = session {
            request = request.header(name, value);
        }
        send(request, timeout, limit).await
    }

    pub(crate) async fn get(&self, url: &str, timeout: Duration, limit: usize) -> Result<Reply, HttpError> {
        send(self.client.get(url), timeout, limit).await
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    fn answered(text: &str) -> Result<Reply, HttpError> {
        let text = text.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            assert!(stream.read(&mut request).unwrap() > 0);
            stream.write_all(text.as_bytes()).unwrap();
        });
        let found = get(&url);
        server.join().unwrap();
        found
    }

    fn get(url: &str) -> Result<Reply, HttpError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Http::new(None).unwrap().get(url, Duration::from_mins(1), 10))
    }

    #[test]
    fn an_answer_has_its_status_and_headers() {
        let head = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 7\r\ncontent-type: text/plain\r\n";
        let reply = answered(&format!("{head}content-length: 4\r\n\r\nbusy")).unwrap();
        assert_eq!((reply.status, reply.retry_after), (503, Some(Duration::from_secs(7))));
        assert_eq!((reply.content_type.as_str(), &reply.body[..]), ("text/plain", &b"busy"[..]));
        let moved =
            answered("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(moved.unwrap().status, 302, "redirects are not followed");
    }

    #[test]
    fn an_answer_that_is_none_says_why_without_an_address() {
        let long = answered("HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\nhello world").unwrap_err();
        assert!(matches!(long, HttpError::TooLarge(10)), "{long:?}");
        assert_eq!(long.reason(Duration::ZERO), "broke off: an answer of more than 10 bytes");
        let cut = answered("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello").unwrap_err();
        assert!(matches!(cut, HttpError::Broken(_)), "{cut:?}");
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let gone = get(&format!("http://{free}/")).unwrap_err();
        assert!(matches!(&gone, HttpError::Unreachable(reason) if !reason.contains("127.0.0.1")), "{gone:?}");
        let nowhere = get("no address").unwrap_err();
        assert!(matches!(nowhere, HttpError::Unreachable(_)), "{nowhere:?}");
    }

    #[test]
    fn a_key_comes_from_the_environment() {
        assert_eq!(api_key("").unwrap(), None);
        let Err(NoClient::Key(reason)) = api_key("TURNWISE_NO_SUCH_VARIABLE") else {
            panic!("there is no such variable");
        };
        assert!(reason.contains("TURNWISE_NO_SUCH_VARIABLE"), "{reason}");
        assert!(bearer("a key").unwrap().is_sensitive());
        assert!(matches!(bearer("a\nkey"), Err(NoClient::Key(_))));
    }
}
