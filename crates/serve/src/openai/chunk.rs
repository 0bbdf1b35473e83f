//! Chunks of a streamed response.

use serde::{Deserialize, Serialize};

use super::{ChatResponse, ChoiceLogprobs, MessageCall, Usage};

/// New content of the message in this chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delta {
    /// `assistant`; set only in the first chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Additional text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Tool calls, or parts of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<DeltaCall>,
}

/// A call in a chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeltaCall {
    /// Index of the tool call within the response.
    pub index: usize,
    /// Id of the call.
    pub id: Option<String>,
    /// `function`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Name and arguments.
    pub function: DeltaFunction,
}

/// The function of a tool call, in a chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeltaFunction {
    /// Name of the tool.
    pub name: Option<String>,
    /// Arguments as JSON text.
    pub arguments: Option<String>,
}

impl DeltaCall {
    /// Returns a complete call as a single part.
    pub fn whole(index: usize, call: MessageCall) -> Self {
        let function =
            DeltaFunction { name: Some(call.function.name), arguments: Some(call.function.arguments) };
        Self { index, id: Some(call.id), kind: Some(call.kind), function }
    }
}

/// Part of one choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChunkChoice {
    /// Index of the choice.
    pub index: usize,
    /// New content of the message.
    pub delta: Delta,
    /// Log-probs of the tokens in this chunk, if requested.
    pub logprobs: Option<ChoiceLogprobs>,
    /// Why the choice ended; set only in its last chunk.
    pub finish_reason: Option<String>,
    /// Ids of the tokens in this chunk, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

/// A chunk of a streamed response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatChunk {
    /// Id of the response.
    pub id: String,
    /// `chat.completion.chunk`.
    pub object: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Name of the model.
    pub model: String,
    /// Parts of choices; empty in the chunk that contains the usage.
    pub choices: Vec<ChunkChoice>,
    /// Token counts; set in the last chunk, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Token ids of the prompt; set in the first chunk, if requested.
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
    /// Returns a complete response as chunks: one per choice, and one with token counts if
    /// requested.
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
