//! Opens a session, and downloads files.

use std::path::Path;

use serde_json::{Value, json};

use super::client::Dialect;
use super::error::{TinkerError, shortened};
use super::requests::{Repeat, Requests};
use super::transport::Payload;

impl Requests {
    pub(super) async fn open_session(&self) -> Result<String, TinkerError> {
        let what = "create_session";
        let body = json!({ "tags": ["turnwise"], "sdk_version": concat!("turnwise-", env!("CARGO_PKG_VERSION")), "user_metadata": null });
        let make = |_| Payload::json(&body);
        let taken =
            self.submit("api/v1/create_session", &make, Repeat::Harmless, &mut self.tries(what)).await?;
        if let Some(error) = taken["error_message"].as_str() {
            return Err(TinkerError::Refused { what, status: 200, detail: shortened(error) });
        }
        let session = taken["session_id"].as_str().map(str::to_owned);
        session.ok_or_else(|| TinkerError::Protocol { what, reason: "it has no session_id".into() })
    }

    /// Detects the dialect: protobuf services reject JSON's content type.
    pub(super) async fn probe(&self) -> Result<Dialect, TinkerError> {
        let what = "the probe of its dialect";
        let body = json!({});
        let make = |_| Payload::json(&body);
        let mut tries = self.tries(what);
        match self.submit("api/v1/forward_backward", &make, Repeat::Harmless, &mut tries).await {
            Err(TinkerError::Refused { status: 415, .. }) => Ok(Dialect::Protobuf),
            Err(TinkerError::Refused { status: 422, .. }) => Ok(Dialect::Json),
            Err(error) => Err(error),
            Ok(_) => Err(TinkerError::Protocol { what, reason: "it takes a pass without a model".into() }),
        }
    }

    pub(super) async fn models(&self) -> Result<Vec<String>, TinkerError> {
        let what = "get_server_capabilities";
        let reply = self.transport.get("api/v1/get_server_capabilities", self.timing.poll).await;
        let reply = reply.map_err(|error| TinkerError::Interrupted { what, reason: error.cause() })?;
        let value: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        let models = value["supported_models"].as_array();
        Ok(models
            .into_iter()
            .flatten()
            .filter_map(|model| model["model_name"].as_str().map(str::to_owned))
            .collect())
    }

    pub(super) async fn download(
        &self,
        what: &'static str,
        from: &str,
        to: &Path,
    ) -> Result<(), TinkerError> {
        let mut last = String::new();
        for attempt in 0..5 {
            if attempt > 0 {
                tokio::time::sleep(self.timing.pause * 2u32.pow(attempt)).await;
            }
            match self.transport.download(from, to, self.timing.timeout).await {
                Ok((200, _)) => return Ok(()),
                Ok((status @ (408 | 425 | 429 | 500..), text)) => last = format!("status {status}: {text}"),
                Ok((status, text)) => {
                    return Err(TinkerError::Refused { what, status, detail: shortened(&text) });
                }
                Err(error) => last = error.cause(),
            }
        }
        Err(TinkerError::Interrupted { what, reason: shortened(&last) })
    }
}
