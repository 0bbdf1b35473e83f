//! HTTP requests to the hub, with retries.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::http::Response;
use ureq::{Agent, Body, SendBody};

use super::PushError;

/// Maximum response size; LFS batch responses are far smaller.
const LARGEST: u64 = 16 << 20;
const TRIES: u32 = 4;

pub(super) struct Client {
    agent: Agent,
    pub(super) endpoint: String,
    token: String,
    /// Wait before the second try, doubled for each later try.
    pause: Duration,
}

#[derive(Clone, Copy)]
pub(super) struct Form {
    pub(super) content_type: &'static str,
    /// Whether to send the token, which the hub may receive but the hub's storage must not.
    pub(super) authorized: bool,
    /// Whether the request is idempotent.
    pub(super) repeatable: bool,
}

pub(super) const JSON: Form = Form { content_type: "application/json", authorized: true, repeatable: true };

impl Client {
    pub(super) fn new(endpoint: &str, token: String, pause: Duration) -> Self {
        let agent = Agent::config_builder()
            .timeout_connect(Some(Duration::from_secs(30)))
            // Committing large files takes a while. Sending has no limit, because it depends on
            // file size.
            .timeout_recv_response(Some(Duration::from_mins(10)))
            .http_status_as_error(false)
            // The token must not be sent to another address.
            .max_redirects(0)
            .build();
        Self { agent: agent.into(), endpoint: endpoint.trim_end_matches('/').to_owned(), token, pause }
    }

    pub(super) fn post<T: DeserializeOwned>(
        &self,
        url: &str,
        body: &Value,
        form: Form,
    ) -> Result<T, PushError> {
        let body = body.to_string();
        let response = self.send(url, form, || {
            let request = self.agent.post(url).header("content-type", form.content_type);
            let request = request.header("accept", form.content_type);
            self.authorize(request, form).send(&body)
        })?;
        self.parse(url, response)
    }

    pub(super) fn post_only(&self, url: &str, body: &Value, form: Form) -> Result<(), PushError> {
        let body = body.to_string();
        self.send(url, form, || {
            let request = self.agent.post(url).header("content-type", form.content_type);
            self.authorize(request, form).send(&body)
        })
        .map(drop)
    }

    pub(super) fn post_lines<T: DeserializeOwned>(&self, url: &str, lines: &str) -> Result<T, PushError> {
        let form = Form { content_type: "application/x-ndjson", repeatable: false, ..JSON };
        let response = self.send(url, form, || {
            let request = self.agent.post(url).header("content-type", form.content_type);
            self.authorize(request, form).send(lines)
        })?;
        self.parse(url, response)
    }

    pub(super) fn get<T: DeserializeOwned>(&self, url: &str) -> Result<T, PushError> {
        let response = self.send(url, JSON, || {
            self.agent.get(url).header("authorization", format!("Bearer {}", self.token)).call()
        })?;
        self.parse(url, response)
    }

    /// Uploads to a signed storage URL, without the token, and returns the `ETag`. Each try calls
    /// `open`.
    pub(super) fn put<R: std::io::Read>(
        &self,
        url: &str,
        length: u64,
        open: impl Fn() -> Result<R, std::io::Error>,
    ) -> Result<Option<String>, PushError> {
        let form = Form { content_type: "application/octet-stream", authorized: false, repeatable: true };
        let response = self.send(url, form, || {
            let mut reader = open()?;
            // The storage rejects chunked bodies.
            let request = self.agent.put(url).header("content-length", length);
            request.send(SendBody::from_reader(&mut reader))
        })?;
        let tag = response.headers().get("etag").and_then(|tag| tag.to_str().ok());
        Ok(tag.map(str::to_owned))
    }

    fn authorize<B>(&self, request: ureq::RequestBuilder<B>, form: Form) -> ureq::RequestBuilder<B> {
        if form.authorized {
            request.header("authorization", format!("Bearer {}", self.token))
        } else {
            request
        }
    }

    fn send(
        &self,
        url: &str,
        form: Form,
        request: impl Fn() -> Result<Response<Body>, ureq::Error>,
    ) -> Result<Response<Body>, PushError> {
        let tries = if form.repeatable { TRIES } else { 1 };
        let mut pause = self.pause;
        for left in (0..tries).rev() {
            let error = match request() {
                Ok(response) if response.status().is_success() => return Ok(response),
                Ok(response) => {
                    let status = response.status().as_u16();
                    let error = self.status(url, response);
                    if status != 429 && status < 500 {
                        return Err(error);
                    }
                    error
                }
                Err(error) => self.network(url, &error.to_string()),
            };
            if left == 0 {
                return Err(error);
            }
            std::thread::sleep(pause);
            pause *= 2;
        }
        Err(self.network(url, "was not tried"))
    }

    fn parse<T: DeserializeOwned>(&self, url: &str, mut response: Response<Body>) -> Result<T, PushError> {
        let text = response.body_mut().with_config().limit(LARGEST).read_to_string();
        let text = text.map_err(|error| self.network(url, &error.to_string()))?;
        serde_json::from_str(&text)
            .map_err(|error| self.network(url, &format!("unexpected response: {error}")))
    }

    fn status(&self, url: &str, mut response: Response<Body>) -> PushError {
        let status = response.status().as_u16();
        let header = |name: &str| {
            response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let (code, message, location) =
            (header("x-error-code"), header("x-error-message"), header("location"));
        let body = response.body_mut().with_config().limit(LARGEST).read_to_string().unwrap_or_default();
        let message = if message.is_empty() { in_body(&body) } else { message };
        let hint = match (status, code.as_str()) {
            (401, _) => {
                "the token is missing, expired or wrong: run `hf auth login` or set HF_TOKEN".to_owned()
            }
            (403, _) => {
                "the token may not write here: use one with write permission for this repository".into()
            }
            (404, "RevisionNotFound") => "create the branch on the hub first".into(),
            (404, _) => "check the name, or create the repository with --create".into(),
            (409 | 412, _) => "the repository changed meanwhile; rerun the command".into(),
            (429, _) => "too many requests; rerun the command later".into(),
            (300..=399, _) => format!("the address moved to {}; use the new name", plain(&location)),
            _ => String::new(),
        };
        let hint = if hint.is_empty() { hint } else { format!("; {hint}") };
        PushError::Status { address: plain(url), status, message: self.hide(&message), hint }
    }

    pub(super) fn network(&self, url: &str, reason: &str) -> PushError {
        PushError::Network { address: plain(url), reason: self.hide(reason) }
    }

    /// Shortens the text and removes the token.
    fn hide(&self, text: &str) -> String {
        text.replace(&self.token, "***").chars().take(300).collect()
    }
}

/// Returns `error` or `message` of a JSON body, or else the whole text.
fn in_body(body: &str) -> String {
    let json = serde_json::from_str::<Value>(body).ok();
    let message = json.as_ref().and_then(|json| json.get("error").or_else(|| json.get("message"))?.as_str());
    message.unwrap_or(body.trim()).to_owned()
}

/// Removes the URL's query, because it may contain a signature.
fn plain(url: &str) -> String {
    url.split('?').next().unwrap_or_default().to_owned()
}
