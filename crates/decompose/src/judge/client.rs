//! HTTP requests to the judge.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use turnwise_core::{Purpose, Seed, backoff, is_transient_status};
use turnwise_settings::{ApiKeyError, api_key, check_address};

use super::cache::Key;
use super::{JudgeConfig, JudgeError};

const LARGEST: u64 = 1 << 20;

const PROBE_TOKENS: u32 = 16;

pub(crate) fn check_endpoint(endpoint: &str) -> Result<(), String> {
    check_address(endpoint).map_err(|error| error.to_string())?;
    if endpoint.starts_with("https://") && !cfg!(feature = "tls") {
        let reason = "https needs a build with `--features tls`; or put a local proxy before the service";
        return Err(reason.into());
    }
    Ok(())
}

/// An API key, which is never printed.
struct Secret(Option<String>);

impl Secret {
    fn from_env(name: &str) -> Result<Self, ApiKeyError> {
        api_key(name).map(Self)
    }

    fn hide(&self, text: &str) -> String {
        self.0.as_ref().map_or_else(|| text.to_owned(), |key| text.replace(key, "[key]"))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.0.is_some() { "Secret([key])" } else { "Secret(none)" })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Budget,
    Timeout,
    Transport(String),
    Status(u16, String),
    /// The response is not a chat completion, or it has no valid scores.
    Malformed(String),
}

impl Failure {
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Budget => false,
            Self::Timeout | Self::Transport(_) | Self::Malformed(_) => true,
            Self::Status(status, _) => is_transient_status(*status),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Budget => formatter.write_str("the call budget is used up; raise decomposer.call_budget"),
            Self::Timeout => formatter.write_str("no answer in time; raise decomposer.timeout_s"),
            Self::Transport(reason) => write!(formatter, "no connection: {reason}"),
            Self::Status(status, body) => write!(formatter, "status {status}: {body}"),
            Self::Malformed(reason) => formatter.write_str(reason),
        }
    }
}

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
}

#[derive(Deserialize)]
pub(crate) struct Message {
    /// The reply's text; null if the model spent all its tokens on reasoning.
    pub(crate) content: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Client {
    agent: ureq::Agent,
    url: String,
    secret: Secret,
    seed: u64,
}

impl Client {
    pub(super) fn new(config: &JudgeConfig, seed: u64) -> Result<Self, JudgeError> {
        Self::connect(&config.endpoint, &config.api_key_env, config.timeout_s, seed)
            .map_err(|error| JudgeError::setting("api_key_env", error.to_string()))
    }

    /// Creates a client without contacting the service.
    ///
    /// # Errors
    /// Fails if the API key is not set.
    pub(crate) fn connect(
        endpoint: &str,
        api_key_env: &str,
        timeout_s: f64,
        seed: u64,
    ) -> Result<Self, ApiKeyError> {
        let settings = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs_f64(timeout_s)))
            .http_status_as_error(false)
            // The key goes only to the configured service.
            .max_redirects(0)
            .build();
        Ok(Self {
            agent: settings.into(),
            url: format!("{}/chat/completions", endpoint.trim_end_matches('/')),
            secret: Secret::from_env(api_key_env)?,
            seed,
        })
    }

    pub(super) fn ask(&self, config: &JudgeConfig, system: &str, user: &str) -> Result<String, Failure> {
        let message = self.complete(config, system, user, config.max_tokens)?;
        message
            .content
            .ok_or_else(|| Failure::Malformed("an answer without text; raise decomposer.max_tokens".into()))
    }

    /// Sends a short question to test the service; any chat completion is a success.
    pub(super) fn probe(&self, config: &JudgeConfig, system: &str) -> Result<(), Failure> {
        self.complete(config, system, "Answer with [1].", config.max_tokens.min(PROBE_TOKENS)).map(drop)
    }

    fn complete(
        &self,
        config: &JudgeConfig,
        system: &str,
        user: &str,
        max_tokens: u32,
    ) -> Result<Message, Failure> {
        self.send(&json!({
            "model": config.model,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
            "temperature": config.temperature,
            "max_tokens": max_tokens,
            "stream": false,
        }))
    }

    /// Sends a request and returns the first choice's message.
    ///
    /// # Errors
    /// Fails if the reply is not a chat completion.
    pub(crate) fn send(&self, body: &serde_json::Value) -> Result<Message, Failure> {
        let mut request = self.agent.post(&self.url).header("content-type", "application/json");
        if let Some(key) = &self.secret.0 {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let mut response = request.send(body.to_string()).map_err(|error| self.failure(&error))?;
        let status = response.status().as_u16();
        let read = response.body_mut().with_config().limit(LARGEST).read_to_string();
        if status != 200 {
            // The service's message may repeat the request.
            let text: String = self.secret.hide(&read.unwrap_or_default()).chars().take(200).collect();
            return Err(Failure::Status(status, text));
        }
        let text = read.map_err(|error| self.failure(&error))?;
        let completion: Completion = serde_json::from_str(&text)
            .map_err(|error| Failure::Malformed(format!("not a chat completion: {error}")))?;
        let choice = completion.choices.into_iter().next();
        choice.map(|choice| choice.message).ok_or_else(|| Failure::Malformed("no choices".into()))
    }

    fn failure(&self, error: &ureq::Error) -> Failure {
        match error {
            ureq::Error::Timeout(_) => Failure::Timeout,
            ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => Failure::Timeout,
            error => Failure::Transport(self.secret.hide(&error.to_string())),
        }
    }

    /// Returns the wait before retry `attempt` (from 1). The wait doubles with each attempt, up to
    /// `backoff_max_s`, and is then shortened at random by up to half; the seed decides by how
    /// much.
    pub(super) fn pause(&self, config: &JudgeConfig, key: &Key, attempt: u32) -> Duration {
        let coordinates = [key.coordinate(), u64::from(attempt)];
        let share = Seed::derive(self.seed, Purpose::Credit, &coordinates).rng().uniform();
        backoff(config.backoff_s, config.backoff_max_s, attempt, share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_within_bounds_and_repeat() {
        let config =
            JudgeConfig { model: "m".into(), backoff_s: 0.5, backoff_max_s: 3.0, ..JudgeConfig::default() };
        let client = Client::new(&config, 7).unwrap();
        let key = Key::of(&["a"]);
        for (attempt, full) in [(1, 0.5), (2, 1.0), (3, 2.0), (4, 3.0), (99, 3.0)] {
            let pause = client.pause(&config, &key, attempt);
            assert!((0.5 * full..=full).contains(&pause.as_secs_f64()), "{attempt}: {pause:?}");
            assert_eq!(pause, client.pause(&config, &key, attempt));
            assert_ne!(pause, client.pause(&config, &Key::of(&["b"]), attempt));
        }
    }

    #[test]
    fn what_cannot_get_better_is_not_tried_again() {
        let passing = |status| Failure::Status(status, String::new()).is_passing();
        assert!([408, 429, 500, 503].into_iter().all(passing));
        assert!(![301, 400, 401, 403, 404].into_iter().any(passing));
        assert!(!Failure::Budget.is_passing() && Failure::Timeout.is_passing());
    }

    #[test]
    fn a_key_is_hidden() {
        let secret = Secret(Some("sk-123".into()));
        assert_eq!(format!("{secret:?} {}", secret.hide("no sk-123 here")), "Secret([key]) no [key] here");
    }
}
