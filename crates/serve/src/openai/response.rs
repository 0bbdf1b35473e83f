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
    /// Name of the model.
    pub id: String,
    /// `model`.
    pub object: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Name of the organization that runs the server.
    pub owned_by: String,
    /// Maximum number of tokens in prompt and response together (a vLLM extension).
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
    /// Number of prompt tokens.
    pub prompt_tokens: usize,
    /// Number of response tokens.
    pub completion_tokens: usize,
    /// Sum of both.
    pub total_tokens: usize,
    /// Breakdown of the prompt tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens_details: Option<PromptDetails>,
}

/// Breakdown of the prompt tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptDetails {
    /// Number of tokens whose keys and values were already cached.
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

/// Log-prob of a token, with alternatives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprob {
    /// Text of the token; incomplete characters are shown as U+FFFD.
    pub token: String,
    /// Log-prob of the token, in nats.
    pub logprob: f32,
    /// Bytes of the token.
    pub bytes: Option<Vec<u8>>,
    /// The most likely tokens, best first.
    pub top_logprobs: Vec<TopLogprob>,
}

/// A likely alternative to the sampled token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopLogprob {
    /// Text of the alternative token.
    pub token: String,
    /// Log-prob of the alternative, in nats.
    pub logprob: f32,
    /// Bytes of the alternative.
    pub bytes: Option<Vec<u8>>,
}

/// Log-probs of a chat response.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChoiceLogprobs {
    /// One entry per response token.
    pub content: Option<Vec<TokenLogprob>>,
    /// Always `None`.
    pub refusal: Option<Vec<TokenLogprob>>,
}

/// The assistant's message in a response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseMessage {
    /// `assistant`.
    pub role: String,
    /// Text of the message; `None` if it only contains tool calls.
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

/// A response of a chat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Index of this choice.
    pub index: usize,
    /// The message.
    pub message: ResponseMessage,
    /// Log-probs, if requested.
    pub logprobs: Option<ChoiceLogprobs>,
    /// `stop`, `length` or `tool_calls`.
    pub finish_reason: Option<String>,
    /// Sampled token ids, including the stop token, if requested.
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
    /// Id of the response.
    pub id: String,
    /// `chat.completion`.
    pub object: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Name of the model.
    pub model: String,
    /// The responses.
    pub choices: Vec<Choice>,
    /// Token counts.
    pub usage: Usage,
    /// Token ids of the prompt, if requested.
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

/// Log-probs of a text completion, one entry per token.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TextLogprobs {
    /// Texts of the tokens.
    pub tokens: Vec<String>,
    /// Log-probs of the tokens, in nats.
    pub token_logprobs: Vec<f32>,
    /// The alternatives for each token, with their log-probs.
    pub top_logprobs: Option<Vec<BTreeMap<String, f32>>>,
    /// Offset of each token in the response's text, in characters.
    pub text_offset: Vec<usize>,
}

/// One choice of a text completion, or a part of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextChoice {
    /// Index of this choice.
    pub index: usize,
    /// Text of the choice.
    pub text: String,
    /// Log-probs, if requested.
    pub logprobs: Option<TextLogprobs>,
    /// `stop` or `length`.
    pub finish_reason: Option<String>,
    /// Sampled token ids, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
    /// Token ids of the prompt, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
}

/// Response to a text request, or a chunk of a streamed response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextResponse {
    /// Id of the response.
    pub id: String,
    /// `text_completion`.
    pub object: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Name of the model.
    pub model: String,
    /// The responses.
    pub choices: Vec<TextChoice>,
    /// Token counts; in a stream only in the last chunk, and only if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}
