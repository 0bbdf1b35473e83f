//! Whole responses.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::MessageCall;

/// Returns the seconds since 1970, as responses carry them.
pub fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}

/// A model that is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCard {
    /// Its name.
    pub id: String,
    /// `model`.
    pub object: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Who serves it.
    pub owned_by: String,
    /// Longest prompt and response together, in tokens (vLLM's extension).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_model_len: Option<usize>,
}

impl ModelCard {
    /// Creates a card.
    pub fn new(id: impl Into<String>) -> Self {
        let (object, owned_by) = ("model".to_owned(), "turnwise".to_owned());
        Self { id: id.into(), object, created: unix_time(), owned_by, max_model_len: None }
    }
}

/// Counts of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompts.
    pub prompt_tokens: usize,
    /// Tokens of the responses.
    pub completion_tokens: usize,
    /// Both.
    pub total_tokens: usize,
    /// Where the prompts' came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens_details: Option<PromptDetails>,
}

/// Details of a prompt's tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptDetails {
    /// Tokens whose keys and values were cached.
    pub cached_tokens: usize,
}

impl Usage {
    /// Counts tokens.
    pub fn new(prompt: usize, completion: usize, cached: usize) -> Self {
        Self {
            prompt_tokens: prompt,
            completion_tokens: completion,
            total_tokens: prompt + completion,
            prompt_tokens_details: Some(PromptDetails { cached_tokens: cached }),
        }
    }
}

/// Log-prob of a token, with those of its alternatives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprob {
    /// Its text; parts of characters are U+FFFD.
    pub token: String,
    /// Its log-prob, in nats.
    pub logprob: f32,
    /// Its bytes.
    pub bytes: Option<Vec<u8>>,
    /// The most probable tokens, best first.
    pub top_logprobs: Vec<TopLogprob>,
}

/// An alternative of a token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopLogprob {
    /// Its text.
    pub token: String,
    /// Its log-prob, in nats.
    pub logprob: f32,
    /// Its bytes.
    pub bytes: Option<Vec<u8>>,
}

/// Log-probs of a choice of a chat.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChoiceLogprobs {
    /// One entry for each token of the response.
    pub content: Option<Vec<TokenLogprob>>,
    /// Always `None`.
    pub refusal: Option<Vec<TokenLogprob>>,
}

/// The assistant's message in a response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseMessage {
    /// `assistant`.
    pub role: String,
    /// Its text; `None` if it only makes calls.
    pub content: Option<String>,
    /// Always `None`.
    pub refusal: Option<String>,
    /// Calls of tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<MessageCall>,
}

impl ResponseMessage {
    /// Creates a message of text.
    pub fn text(content: impl Into<String>) -> Self {
        let (role, content) = ("assistant".to_owned(), Some(content.into()));
        Self { role, content, refusal: None, tool_calls: Vec::new() }
    }
}

/// A response of a chat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Place among the responses.
    pub index: usize,
    /// The message.
    pub message: ResponseMessage,
    /// Log-probs, if asked for.
    pub logprobs: Option<ChoiceLogprobs>,
    /// `stop`, `length` or `tool_calls`.
    pub finish_reason: Option<String>,
    /// Sampled token ids, stop token included, if asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

impl Choice {
    /// Creates a response without log-probs.
    pub fn new(index: usize, message: ResponseMessage, finish_reason: &str) -> Self {
        let finish_reason = Some(finish_reason.to_owned());
        Self { index, message, logprobs: None, finish_reason, token_ids: None }
    }
}

/// The answer to a chat request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatResponse {
    /// Its id.
    pub id: String,
    /// `chat.completion`.
    pub object: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Name of the model.
    pub model: String,
    /// The responses.
    pub choices: Vec<Choice>,
    /// Counts of tokens.
    pub usage: Usage,
    /// Token ids of the prompt, if asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
}

impl ChatResponse {
    /// Creates an answer without counts.
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

/// Log-probs of a text completion, one entry for each token.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TextLogprobs {
    /// Texts.
    pub tokens: Vec<String>,
    /// Log-probs, in nats.
    pub token_logprobs: Vec<f32>,
    /// Alternatives with their log-probs.
    pub top_logprobs: Option<Vec<BTreeMap<String, f32>>>,
    /// Place of each token in the response's text, in characters.
    pub text_offset: Vec<usize>,
}

/// A response of a text completion, or a part of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextChoice {
    /// Place among the responses.
    pub index: usize,
    /// The text.
    pub text: String,
    /// Log-probs, if asked for.
    pub logprobs: Option<TextLogprobs>,
    /// `stop` or `length`.
    pub finish_reason: Option<String>,
    /// Sampled token ids, if asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
    /// Token ids of the prompt, if asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
}

/// The answer to a text request, and each chunk of a streamed one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextResponse {
    /// Its id.
    pub id: String,
    /// `text_completion`.
    pub object: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Name of the model.
    pub model: String,
    /// The responses.
    pub choices: Vec<TextChoice>,
    /// Counts of tokens; in a stream only in the last chunk, if asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}
