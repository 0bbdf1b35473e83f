//! OpenAI's API types: requests, responses and errors.
//!
//! Unknown and unsupported fields are rejected, with their name in the error ([`ApiError::param`]).
//! Fields and values without effect (`user`, `metadata`, a penalty of 0) are accepted.

mod chat;
mod chunk;
mod error;
mod fields;
mod message;
mod picture;
mod prompt;
mod response;
mod sampling;
mod text;

pub use chat::{ChatRequest, ToolChoice};
pub use chunk::{ChatChunk, ChunkChoice, Delta, DeltaCall, DeltaFunction};
pub use error::ApiError;
pub use message::{CallFunction, ChatMessage, MessageCall};
pub(crate) use prompt::prompt_with;
pub use prompt::{prompt_text, template_messages, template_tools};
pub use response::{
    ChatResponse, Choice, ChoiceLogprobs, ModelCard, PromptDetails, ResponseMessage, TextChoice,
    TextLogprobs, TextResponse, TokenLogprob, TopLogprob, Usage, unix_time,
};
pub use sampling::SamplingFields;
pub use text::{TextPrompt, TextRequest};
