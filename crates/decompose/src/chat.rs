//! Client of a language model behind an OpenAI-compatible endpoint.

use serde_json::json;
use thiserror::Error;
use turnwise_core::backoff;

use crate::judge::client::{Client, Failure, check_endpoint};

/// First wait and maximum wait before a retry, in seconds.
const PAUSE_S: (f64, f64) = (0.5, 10.0);

/// Settings of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatSettings {
    /// Base URL; requests go to `{endpoint}/chat/completions`. `https://` needs the feature `tls`.
    pub endpoint: String,
    /// Model name at the service.
    pub model: String,
    /// Environment variable with the API key; empty if none is needed.
    pub api_key_env: String,
    /// Sampling temperature.
    pub temperature: f64,
    /// Maximum reply tokens.
    pub max_tokens: u32,
    /// Request timeout in seconds, including the reply.
    pub timeout_s: f64,
    /// Maximum number of retries of a failed request.
    pub retries: u32,
}

/// Error of a request.
#[derive(Debug, Error)]
pub enum ChatError {
    /// Invalid setting.
    #[error("{key}: {reason}")]
    Setting {
        /// Field of [`ChatSettings`].
        key: &'static str,
        /// Problem and fix.
        reason: String,
    },
    /// The model did not reply.
    #[error("the model {model:?} at {endpoint} gave no reply ({reason})")]
    NoReply {
        /// Base URL.
        endpoint: String,
        /// Model name.
        model: String,
        /// Last failure.
        reason: String,
        /// Whether a later retry may succeed.
        is_transient: bool,
    },
}

/// A language model behind an endpoint.
#[derive(Debug)]
pub struct ChatModel {
    client: Client,
    settings: ChatSettings,
}

impl ChatModel {
    /// Creates a model without contacting the service.
    ///
    /// # Errors
    /// Fails on an invalid setting.
    pub fn new(settings: ChatSettings) -> Result<Self, ChatError> {
        let fail = |key, reason: String| Err(ChatError::Setting { key, reason });
        if let Err(reason) = check_endpoint(&settings.endpoint) {
            return fail("endpoint", reason);
        }
        if settings.model.is_empty() {
            return fail("model", "is empty; name the model as the service knows it".into());
        }
        match Client::connect(&settings.endpoint, &settings.api_key_env, settings.timeout_s, 0) {
            Ok(client) => Ok(Self { client, settings }),
            Err(error) => fail("api_key_env", error.to_string()),
        }
    }

    /// Returns the model's reply to `messages`, each a pair of role and text.
    ///
    /// # Errors
    /// Fails if there is no reply after all retries.
    pub fn reply(&self, messages: &[(&str, &str)]) -> Result<String, ChatError> {
        let messages: Vec<_> =
            messages.iter().map(|(role, content)| json!({"role": role, "content": content})).collect();
        let body = json!({
            "model": self.settings.model,
            "messages": messages,
            "temperature": self.settings.temperature,
            "max_tokens": self.settings.max_tokens,
            "stream": false,
        });
        let mut attempt = 0;
        loop {
            let failure = match self.client.send(&body).map(|message| message.content) {
                Ok(Some(reply)) if !reply.trim().is_empty() => return Ok(reply),
                Ok(_) => Failure::Malformed("a reply without text; raise max_tokens".into()),
                Err(failure) => failure,
            };
            if attempt >= self.settings.retries || !failure.is_passing() {
                let reason = match &failure {
                    Failure::Timeout => "no answer in time; raise timeout_s".to_owned(),
                    other => other.to_string(),
                };
                return Err(ChatError::NoReply {
                    endpoint: self.settings.endpoint.clone(),
                    model: self.settings.model.clone(),
                    reason,
                    is_transient: failure.is_passing(),
                });
            }
            attempt += 1;
            std::thread::sleep(backoff(PAUSE_S.0, PAUSE_S.1, attempt, 0.0));
        }
    }
}
