//! OpenAI's API types: requests, responses and errors.
//!
//! | file | subject |
//! |---|---|
//! | `chat.rs` | requests of `/v1/chat/completions` |
//! | `chunk.rs` | chunks of a streamed response |
//! | `error.rs` | errors with their HTTP status |
//! | `fields.rs` | reads the fields of a JSON object one by one |
//! | `message.rs` | messages of a conversation |
//! | `picture.rs` | images in messages, as data URLs |
//! | `prompt.rs` | renders the prompt with the model's chat template |
//! | `response.rs` | whole responses |
//! | `sampling.rs` | sampling fields shared by chat and text requests |
//! | `text.rs` | requests of `/v1/completions` |
//!
//! Unknown and unsupported fields are rejected, and the error names them ([`ApiError::param`]).
//! Fields without an effect (`user`, `metadata`, a penalty of 0) are accepted.

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
