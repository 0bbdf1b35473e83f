//! Whole responses.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::MessageCall;

/// Returns the Unix time in seconds.
pub fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}

/// A served model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCard {
    /// Model name.
    pub id: String,
    /// `model`.
    pub object: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Organization that runs the server.
    pub owned_by: String,
    /// Maximum tokens of prompt and response (vLLM extension).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_model_len: Option<usize>,
}

impl ModelCard {
    /// Creates a model card.
    pub fn new(id: impl Into<String>) -> Self {
        let (object, owned_by) = ("model".to_owned(), "turnwise".to_owned());
        Self { id: id.into(), object, created: unix_time(), owned_by, max_model_len: None }
    }
}

/// Token counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Prompt tokens.
    pub prompt_tokens: usize,
    /// Response tokens.
    pub completion_tokens: usize,
    /// Sum of both.
    pub total_tokens: usize,
    /// Prompt details.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens_details: Option<PromptDetails>,
}

/// Prompt token breakdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptDetails {
    /// Number of prompt tokens whose keys and values were already cached.
    pub cached_tokens: usize,
}

impl Usage {
    /// Creates token counts.
    pub fn new(prompt: usize, completion: usize, cached: usize) -> Self {
        Self {
            prompt_tokens: prompt,
            completion_tokens: completion,
            total_tokens: prompt + completion,
            prompt_tokens_details: Some(PromptDetails { cached_tokens: cached }),
        }
    }
}

/// A token's log-prob, with alternatives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprob {
    /// Token text, with U+FFFD for incomplete characters.
    pub token: String,
    /// Log-prob in nats.
    pub logprob: f32,
    /// Token bytes.
    pub bytes: Option<Vec<u8>>,
    /// Most likely tokens, best first.
    pub top_logprobs: Vec<TopLogprob>,
}

/// A likely alternative.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopLogprob {
    /// Token text.
    pub token: String,
    /// Log-prob in nats.
    pub logprob: f32,
    /// Token bytes.
    pub bytes: Option<Vec<u8>>,
}

/// A chat response's log-probs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChoiceLogprobs {
    /// One entry per token.
    pub content: Option<Vec<TokenLogprob>>,
    /// Always `None`.
    pub refusal: Option<Vec<TokenLogprob>>,
}

/// The assistant's message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseMessage {
    /// `assistant`.
    pub role: String,
    /// Text; `None` if there are only tool calls.
    pub content: Option<String>,
    /// Always `None`.
    pub refusal: Option<String>,
    /// Tool calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<MessageCall>,
}

impl ResponseMessage {
    /// Creates a text message.
    pub fn text(content: impl Into<String>) -> Self {
        let (role, content) = ("assistant".to_owned(), Some(content.into()));
        Self { role, content, refusal: None, tool_calls: Vec::new() }
    }
}

/// A chat choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Choice index.
    pub index: usize,
    /// The message.
    pub message: ResponseMessage,
    /// Log-probs, if requested.
    pub logprobs: Option<ChoiceLogprobs>,
    /// `stop`, `length` or `tool_calls`.
    pub finish_reason: Option<String>,
    /// Sampled ids with the stop token, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

impl Choice {
    /// Creates a choice without log-probs.
    pub fn new(index: usize, message: ResponseMessage, finish_reason: &str) -> Self {
        let finish_reason = Some(finish_reason.to_owned());
        Self { index, message, logprobs: None, finish_reason, token_ids: None }
    }
}

/// Response to a chat request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatResponse {
    /// Response id.
    pub id: String,
    /// `chat.completion`.
    pub object: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Model name.
    pub model: String,
    /// Choices.
    pub choices: Vec<Choice>,
    /// Token counts.
    pub usage: Usage,
    /// Prompt token ids, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
}

impl ChatResponse {
    /// Creates a response without token counts.
    pub fn new(id: impl Into<String>, model: &str, choices: Vec<Choice>) -> Self {
        Self {
            id: id.into(),
            object: "chat.completion".to_owned(),
            created: unix_time(),
            model: model.to_owned(),
            choices,
            usage: Usage::default(),
            prompt_token_ids: None,
        }
    }
}

/// Log-probs per token of a text completion.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TextLogprobs {
    /// Token texts.
    pub tokens: Vec<String>,
    /// Log-probs in nats.
    pub token_logprobs: Vec<f32>,
    /// Most likely tokens at each position, with their log-probs.
    pub top_logprobs: Option<Vec<BTreeMap<String, f32>>>,
    /// Token offsets in the text, in characters.
    pub text_offset: Vec<usize>,
}

/// Choice of a text completion; in a stream, part of a choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextChoice {
    /// Choice index.
    pub index: usize,
    /// Choice text.
    pub text: String,
    /// Log-probs, if requested.
    pub logprobs: Option<TextLogprobs>,
    /// `stop` or `length`.
    pub finish_reason: Option<String>,
    /// Sampled ids, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
    /// Prompt token ids, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
}

/// Response to a text request, or a chunk of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextResponse {
    /// Response id.
    pub id: String,
    /// `text_completion`.
    pub object: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Model name.
    pub model: String,
    /// Choices.
    pub choices: Vec<TextChoice>,
    /// Token counts. In a stream, only the last chunk has token counts, and only if the client
    /// requests them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}
