//! Sampling fields.

use serde::Deserialize;
use serde_json::json;

use super::ApiError;
use super::fields::Fields;

/// Maximum alternatives per token, as in OpenAI's API.
const MOST_TOP_LOGPROBS: usize = 20;

const MOST_CHOICES: usize = 128;

/// Maximum stop strings; some evaluation harnesses send more than OpenAI's 4.
const MOST_STOPS: usize = 32;

/// Sampling and streaming fields.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingFields {
    /// Temperature; `None` for the server's default.
    pub temperature: Option<f32>,
    /// Top-p; `None` for the server's default.
    pub top_p: Option<f32>,
    /// Number of most likely tokens to sample from (an extension); 0 samples from all.
    pub top_k: usize,
    /// Maximum response tokens.
    pub max_tokens: Option<usize>,
    /// Seed; equal requests with equal seeds get equal responses.
    pub seed: Option<i64>,
    /// Stop strings, which are removed from the response.
    pub stop: Vec<String>,
    /// Responses per prompt.
    pub n: usize,
    /// Return log-probs.
    pub logprobs: bool,
    /// Alternatives per token.
    pub top_logprobs: usize,
    /// Stream the response.
    pub stream: bool,
    /// Send token counts in a final chunk.
    pub include_usage: bool,
    /// Return prompt and response token ids (vLLM extension).
    pub return_token_ids: bool,
}

impl Default for SamplingFields {
    fn default() -> Self {
        Self {
            temperature: None,
            top_p: None,
            top_k: 0,
            max_tokens: None,
            seed: None,
            stop: Vec::new(),
            n: 1,
            logprobs: false,
            top_logprobs: 0,
            stream: false,
            include_usage: false,
            return_token_ids: false,
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Stops {
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamOptions {
    include_usage: Option<bool>,
    include_obfuscation: Option<bool>,
}

impl SamplingFields {
    pub(super) fn take(fields: &mut Fields) -> Result<Self, ApiError> {
        let temperature = fields.ranged("temperature", 0.0, 2.0)?.map(|value| value as f32);
        let top_p = fields.ranged("top_p", 0.0, 1.0)?.map(|value| value as f32);
        // vLLM's clients send -1 for all tokens.
        let top_k: i64 = fields.take("top_k")?.unwrap_or(0);
        let top_k = usize::try_from(if top_k == -1 { 0 } else { top_k })
            .map_err(|_| ApiError::field("top_k", "`top_k`: give 0 (all tokens) or a positive number"))?;
        let stop = match fields.take::<Stops>("stop")? {
            None => Vec::new(),
            Some(Stops::One(stop)) => vec![stop],
            Some(Stops::Several(stops)) => stops,
        };
        if stop.iter().any(String::is_empty) || stop.len() > MOST_STOPS {
            let message = format!("`stop`: give at most {MOST_STOPS} strings, none of them empty");
            return Err(ApiError::field("stop", message));
        }
        let n = fields.counted("n", 1, MOST_CHOICES)?.unwrap_or(1);
        let seed = fields.take("seed")?;
        let stream = fields.take("stream")?.unwrap_or(false);
        let options: Option<StreamOptions> = fields.take("stream_options")?;
        if options.is_some() && !stream {
            let message = "`stream_options` needs `stream` = true";
            return Err(ApiError::field("stream_options", message));
        }
        if options.as_ref().is_some_and(|options| options.include_obfuscation == Some(true)) {
            let key = "stream_options.include_obfuscation";
            return Err(ApiError::unsupported(key, format!("`{key}` is not supported; leave it out")));
        }
        let include_usage = options.and_then(|options| options.include_usage).unwrap_or(false);
        let return_token_ids = fields.take("return_token_ids")?.unwrap_or(false);
        for key in ["frequency_penalty", "presence_penalty", "min_p", "min_tokens"] {
            fields.drop_if_neutral(key, &[json!(0)])?;
        }
        fields.drop_if_neutral("repetition_penalty", &[json!(1)])?;
        fields.drop_if_neutral("logit_bias", &[json!({})])?;
        for key in ["user", "metadata", "safety_identifier", "prompt_cache_key"] {
            fields.drop_without_effect(key);
        }
        let max_tokens = fields.counted("max_tokens", 0, usize::MAX)?;
        Ok(Self {
            temperature,
            top_p,
            top_k,
            max_tokens,
            seed,
            stop,
            n,
            stream,
            include_usage,
            return_token_ids,
            ..Self::default()
        })
    }

    /// Parses chat `top_logprobs`, which requires `logprobs`.
    pub(super) fn take_chat_logprobs(&mut self, fields: &mut Fields) -> Result<(), ApiError> {
        self.logprobs = fields.take("logprobs")?.unwrap_or(false);
        let top = fields.counted("top_logprobs", 0, MOST_TOP_LOGPROBS)?;
        if top.is_some_and(|top| top > 0) && !self.logprobs {
            return Err(ApiError::field("top_logprobs", "`top_logprobs` needs `logprobs` = true"));
        }
        self.top_logprobs = top.unwrap_or(0);
        Ok(())
    }

    /// Parses a text request's `logprobs`, the number of alternatives per token.
    pub(super) fn take_text_logprobs(&mut self, fields: &mut Fields) -> Result<(), ApiError> {
        let top = fields.counted("logprobs", 0, MOST_TOP_LOGPROBS)?;
        self.logprobs = top.is_some();
        self.top_logprobs = top.unwrap_or(0);
        Ok(())
    }
}
