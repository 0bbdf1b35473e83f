//! Settings for the judge.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::JudgeError;
use super::client::check_endpoint;

/// Settings for the judge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JudgeConfig {
    /// Base URL; requests go to `{endpoint}/chat/completions`. `https://` needs the feature `tls`.
    pub endpoint: String,
    /// Model name at the service.
    pub model: String,
    /// Environment variable with the API key; empty if none is needed.
    pub api_key_env: String,
    /// Prompt template file; if empty, the built-in template is used.
    pub template: PathBuf,
    /// Folder for cached responses; if empty, the folder `judge` in the run directory is used.
    pub cache: PathBuf,
    /// Sampling temperature.
    #[schemars(range(min = 0.0, max = 2.0))]
    pub temperature: f64,
    /// Maximum response tokens.
    #[schemars(range(min = 1, max = 1000000))]
    pub max_tokens: u32,
    /// Request timeout in seconds, including the response.
    #[schemars(range(min = 0.001, max = 86400.0))]
    pub timeout_s: f64,
    /// Maximum number of retries of a failed request.
    #[schemars(range(max = 100))]
    pub retries: u32,
    /// Wait before the first retry, in seconds; it doubles for each further retry. Every wait is
    /// randomly shortened by up to half.
    #[schemars(range(min = 0.0, max = 3600.0))]
    pub backoff_s: f64,
    /// Maximum wait between attempts, in seconds.
    #[schemars(range(min = 0.0, max = 86400.0))]
    pub backoff_max_s: f64,
    /// Maximum number of requests in a run, including retries and the requests made before a
    /// resume, but not the test request at the start. With 0, only cached scores are used.
    #[schemars(range(max = 1_000_000_000))]
    pub call_budget: u64,
    /// Maximum fraction of questions without scores; 1 never stops the run. The run stops if the
    /// fraction is exceeded both among the last 20 questions sent (once there are 8) and among all
    /// questions of the current batch so far. Cache hits in the batch count as answered.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub max_failed_share: f64,
    /// Maximum number of concurrent requests.
    #[schemars(range(min = 1, max = 256))]
    pub concurrency: usize,
}

impl Default for JudgeConfig {
    fn default() -> Self {
        Self {
            endpoint: "http://127.0.0.1:8000/v1".into(),
            model: String::new(),
            api_key_env: String::new(),
            template: PathBuf::new(),
            cache: PathBuf::new(),
            temperature: 0.0,
            max_tokens: 1024,
            timeout_s: 60.0,
            retries: 3,
            backoff_s: 1.0,
            backoff_max_s: 30.0,
            call_budget: 10_000,
            max_failed_share: 0.5,
            concurrency: 4,
        }
    }
}

impl JudgeConfig {
    /// Rejects invalid settings.
    ///
    /// # Errors
    /// The error names the key and the valid values.
    pub fn check(&self) -> Result<(), JudgeError> {
        let fail = |key, reason: String| Err(JudgeError::setting(key, reason));
        turnwise_settings::check(self)?;
        if let Err(reason) = check_endpoint(&self.endpoint) {
            return fail("endpoint", reason);
        }
        if self.model.is_empty() {
            return fail("model", "is empty; name the model as the service knows it".into());
        }
        Ok(())
    }
}
