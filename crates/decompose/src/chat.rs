//! A language model behind an OpenAI-compatible endpoint that continues a conversation.

use serde_json::json;
use thiserror::Error;
use turnwise_core::backoff;

use crate::judge::client::{Client, Failure, check_endpoint};

/// Wait before the first retry and the longest wait, in seconds.
const PAUSE_S: (f64, f64) = (0.5, 10.0);

/// Settings for requests to a language model.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatSettings {
    /// Base URL of the service; requests go to `{endpoint}/chat/completions`. `https://` needs the
    /// feature `tls`.
    pub endpoint: String,
    /// Model name, as the service knows it.
    pub model: String,
    /// Name of the environment variable with the API key; empty if the service needs none.
    pub api_key_env: String,
    /// Sampling temperature.
    pub temperature: f64,
    /// Maximum number of tokens in a reply.
    pub max_tokens: u32,
    /// Timeout of a request in seconds, including the reply.
    pub timeout_s: f64,
    /// Number of retries of a failed request.
    pub retries: u32,
}

/// Error from a request to a language model.
#[derive(Debug, Error)]
pub enum ChatError {
    /// A setting is invalid.
    #[error("{key}: {reason}")]
    Setting {
        /// The field of [`ChatSettings`].
        key: &'static str,
        /// The problem and how to fix it.
        reason: String,
    },
    /// The model did not reply.
    #[error("the model {model:?} at {endpoint} gave no reply ({reason})")]
    NoReply {
        /// Base URL of the service.
        endpoint: String,
        /// Name of the requested model.
        model: String,
        /// The last failure.
        reason: String,
        /// True if retrying later may succeed.
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
    /// Creates a model with these settings. Sends nothing.
    ///
    /// # Errors
    /// Fails if a setting is invalid.
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

    /// Returns the model's reply to messages (role and text).
    ///
    /// # Errors
    /// Fails if the model does not reply within the retries.
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
