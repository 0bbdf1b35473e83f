//! Chunks of a streamed response.

use serde::{Deserialize, Serialize};

use super::{ChatResponse, ChoiceLogprobs, MessageCall, Usage};

/// New message content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delta {
    /// `assistant`, in the first chunk only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Additional text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Tool calls or their parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<DeltaCall>,
}

/// Part of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeltaCall {
    /// Call index in the response.
    pub index: usize,
    /// Call id.
    pub id: Option<String>,
    /// `function`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Name and arguments.
    pub function: DeltaFunction,
}

/// Part of a call's function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeltaFunction {
    /// Tool name.
    pub name: Option<String>,
    /// Arguments as JSON text.
    pub arguments: Option<String>,
}

impl DeltaCall {
    /// Returns a complete call as one part.
    pub fn whole(index: usize, call: MessageCall) -> Self {
        let function =
            DeltaFunction { name: Some(call.function.name), arguments: Some(call.function.arguments) };
        Self { index, id: Some(call.id), kind: Some(call.kind), function }
    }
}

/// Part of one choice in a streamed response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChunkChoice {
    /// Choice index.
    pub index: usize,
    /// New message content.
    pub delta: Delta,
    /// Log-probs of this chunk's tokens, if requested.
    pub logprobs: Option<ChoiceLogprobs>,
    /// Why the choice ended; in its last chunk only.
    pub finish_reason: Option<String>,
    /// This chunk's token ids, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

/// A chunk of a streamed response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatChunk {
    /// Response id.
    pub id: String,
    /// `chat.completion.chunk`.
    pub object: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Model name.
    pub model: String,
    /// Parts of choices; empty in the usage chunk.
    pub choices: Vec<ChunkChoice>,
    /// Token counts in the last chunk, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Prompt token ids in the first chunk, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
}

impl ChatChunk {
    /// Creates a chunk without token counts.
    pub fn new(id: &str, created: u64, model: &str, choices: Vec<ChunkChoice>) -> Self {
        Self {
            id: id.to_owned(),
            object: "chat.completion.chunk".to_owned(),
            created,
            model: model.to_owned(),
            choices,
            usage: None,
            prompt_token_ids: None,
        }
    }
}

impl ChatResponse {
    /// Splits a response into one chunk per choice and, if requested, a chunk with token counts.
    pub(crate) fn into_chunks(self, include_usage: bool) -> Vec<ChatChunk> {
        let Self { id, created, model, choices, usage, mut prompt_token_ids, .. } = self;
        let mut chunks = Vec::new();
        for choice in choices {
            let calls = choice.message.tool_calls.into_iter().enumerate();
            let delta = Delta {
                role: Some(choice.message.role),
                content: choice.message.content,
                tool_calls: calls.map(|(index, call)| DeltaCall::whole(index, call)).collect(),
            };
            let choice = ChunkChoice {
                index: choice.index,
                delta,
                logprobs: choice.logprobs,
                finish_reason: choice.finish_reason,
                token_ids: choice.token_ids,
            };
            let mut chunk = ChatChunk::new(&id, created, &model, vec![choice]);
            chunk.prompt_token_ids = prompt_token_ids.take();
            chunks.push(chunk);
        }
        if include_usage {
            let mut last = ChatChunk::new(&id, created, &model, Vec::new());
            last.usage = Some(usage);
            chunks.push(last);
        }
        chunks
    }
}
