//! Errors in OpenAI's format.

use serde_json::{Value, json};

/// An error for the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status.
    pub status: u16,
    /// Problem and fix.
    pub message: String,
    /// Invalid request field.
    pub param: Option<String>,
    /// Code such as `context_length_exceeded`.
    pub code: Option<String>,
}

impl ApiError {
    /// Creates an error.
    pub fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, code: None }
    }

    /// Creates an error for an invalid field (400).
    pub fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(400, message).with_param(param)
    }

    /// Creates an error for an unsupported field (400).
    pub fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::field(param, message).with_code("unsupported_parameter")
    }

    /// Creates an error for a prompt beyond the context (400, `context_length_exceeded`).
    pub fn context_length(param: &str, message: impl Into<String>) -> Self {
        Self::field(param, message).with_code("context_length_exceeded")
    }

    /// Creates an error for a missing or wrong API key (401).
    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(401, message).with_code("invalid_api_key")
    }

    /// Creates an error for an unknown model (404).
    pub(crate) fn no_model(model: &str, served: &[String]) -> Self {
        let served = if served.is_empty() { "none".to_owned() } else { served.join(", ") };
        let message = format!("the model `{model}` is not served here; served are: {served}");
        Self::new(404, message).with_param("model").with_code("model_not_found")
    }

    /// Creates an error for an unknown path (404).
    pub fn no_path(path: &str) -> Self {
        Self::new(404, format!("nothing is served at {path}: the base URL of this server ends with /v1"))
    }

    /// Creates an error for a server failure (500).
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, message)
    }

    /// Sets the invalid field.
    pub(crate) fn with_param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Sets the code.
    pub fn with_code(mut self, code: &str) -> Self {
        self.code = Some(code.to_owned());
        self
    }

    /// Returns OpenAI's error type.
    pub fn kind(&self) -> &'static str {
        match self.status {
            401 => "authentication_error",
            403 => "permission_error",
            429 => "rate_limit_error",
            400..=499 => "invalid_request_error",
            _ => "server_error",
        }
    }

    /// Returns `{"error": {"message", "type", "param", "code"}}`.
    pub fn body(&self) -> Value {
        let Self { message, param, code, .. } = self;
        json!({ "error": { "message": message, "type": self.kind(), "param": param, "code": code } })
    }
}
