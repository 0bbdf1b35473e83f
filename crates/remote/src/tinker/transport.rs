//! HTTP with limited replies; the API key is sent only in its header.

use std::path::Path;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};

use super::error::TinkerError;
use crate::http::{HttpError, Proxies, Reply, api_key, build, client_builder, read, secret_header, send};

/// Maximum bytes of a reply in memory.
const LARGEST_ANSWER: usize = 256 << 20;
/// Maximum bytes of a weight archive.
const LARGEST_ARCHIVE: u64 = 64 << 30;
const KEY: HeaderName = HeaderName::from_static("x-api-key");
pub(crate) const PROTOBUF: &str = "application/x-protobuf";

#[derive(Clone, Debug)]
pub(crate) enum Payload {
    Json(Vec<u8>),
    Protobuf(Vec<u8>),
}

impl Payload {
    pub(crate) fn json(value: &serde_json::Value) -> Self {
        Self::Json(value.to_string().into_bytes())
    }
}

pub(crate) fn is_protobuf(reply: &Reply) -> bool {
    reply.content_type.starts_with(PROTOBUF)
}

pub(crate) struct Transport {
    http: reqwest::Client,
    base: reqwest::Url,
    key: Option<HeaderValue>,
}

impl Transport {
    pub(crate) fn new(url: &str, key_env: &str) -> Result<Self, TinkerError> {
        let fail = |key, reason: String| TinkerError::Setting { key, reason };
        let text = format!("{}/", url.trim_end_matches('/'));
        let base =
            reqwest::Url::parse(&text).map_err(|error| fail("url", format!("is not an address: {error}")))?;
        if base.scheme() == "https" && !cfg!(feature = "tls") {
            return Err(fail("url", "https needs a program with the feature `tls`".into()));
        }
        let key = api_key(key_env)?.as_deref().map(secret_header).transpose()?;
        Ok(Self { http: build(client_builder(Proxies::OfEnvironment))?, base, key })
    }

    /// Returns the headers of a request. The API key is sent only to the service's own addresses,
    /// because downloads may be redirected.
    fn headers(&self, url: &reqwest::Url) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(key) = self.key.as_ref().filter(|_| url.origin() == self.base.origin()) {
            headers.insert(KEY, key.clone());
        }
        headers
    }

    fn url(&self, path: &str) -> Result<reqwest::Url, HttpError> {
        self.base.join(path).map_err(|error| HttpError::Unreachable(error.to_string()))
    }

    pub(crate) async fn post(
        &self,
        path: &str,
        payload: Payload,
        timeout: Duration,
    ) -> Result<Reply, HttpError> {
        let url = self.url(path)?;
        let (kind, body) = match payload {
            Payload::Json(body) => ("application/json", body),
            Payload::Protobuf(body) => (PROTOBUF, body),
        };
        let request = self.http.post(url.clone()).headers(self.headers(&url)).header(CONTENT_TYPE, kind);
        let request = request.header("accept", format!("{PROTOBUF}, application/json"));
        send(request.body(body), timeout, LARGEST_ANSWER).await
    }

    pub(crate) async fn get(&self, path: &str, timeout: Duration) -> Result<Reply, HttpError> {
        let url = self.url(path)?;
        send(self.http.get(url.clone()).headers(self.headers(&url)), timeout, LARGEST_ANSWER).await
    }

    /// Downloads `path` to a file, following redirects. Returns the status and, unless it is 200,
    /// the reply's body.
    pub(crate) async fn download(
        &self,
        path: &str,
        to: &Path,
        timeout: Duration,
    ) -> Result<(u16, String), HttpError> {
        tokio::time::timeout(timeout, self.fetch(path, to)).await.unwrap_or(Err(HttpError::Timeout))
    }

    async fn fetch(&self, path: &str, to: &Path) -> Result<(u16, String), HttpError> {
        let mut url = self.url(path)?;
        for _ in 0..5 {
            let mut response = self.http.get(url.clone()).headers(self.headers(&url)).send().await?;
            let status = response.status();
            if status.is_redirection()
                && let Some(next) = response.headers().get(LOCATION).and_then(|next| next.to_str().ok())
            {
                url = url.join(next).map_err(|error| HttpError::Broken(error.to_string()))?;
                continue;
            }
            if !status.is_success() {
                let reply = read(response, LARGEST_ANSWER).await?;
                return Ok((status.as_u16(), String::from_utf8_lossy(&reply.body).into_owned()));
            }
            let promised = response.content_length();
            let io = |error: std::io::Error| HttpError::Broken(format!("{}: {error}", to.display()));
            let mut file = std::fs::File::create(to).map_err(io)?;
            let mut length = 0u64;
            while let Some(chunk) = response.chunk().await? {
                length += chunk.len() as u64;
                if length > LARGEST_ARCHIVE {
                    return Err(HttpError::TooLarge(LARGEST_ARCHIVE as usize));
                }
                std::io::Write::write_all(&mut file, &chunk).map_err(io)?;
            }
            if promised.is_some_and(|promised| promised != length) {
                return Err(HttpError::Broken(format!("{length} of {} bytes came", promised.unwrap_or(0))));
            }
            return Ok((200, String::new()));
        }
        Err(HttpError::Broken("redirected too often".into()))
    }
}
