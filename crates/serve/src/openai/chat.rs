//! Requests of `/v1/chat/completions`.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use turnwise_core::Tool;

use super::fields::Fields;
use super::picture::PIXELS;
use super::{ApiError, ChatMessage, SamplingFields};

/// Tools that a response must or may call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// The response must not call a tool, but the prompt still lists the tools.
    None,
    /// The response must call at least one tool.
    Required,
    /// The response must call the named tool.
    Function(String),
}

/// A conversation to continue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatRequest {
    /// Model name.
    pub model: String,
    /// Messages so far.
    pub messages: Vec<ChatMessage>,
    /// Tools, with JSON keys in the original order.
    pub tools: Vec<Tool>,
    /// Which tools to call.
    pub tool_choice: ToolChoice,
    /// False if a response may contain at most one tool call.
    pub parallel_tool_calls: Option<bool>,
    /// `chat_template_kwargs.enable_thinking` (vLLM's extension).
    pub thinking: Option<bool>,
    /// Client data without effect on the response.
    pub metadata: Map<String, Value>,
    /// Sampling and streaming fields.
    pub sampling: SamplingFields,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Choice {
    Word(String),
    Named { function: Named },
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TemplateKwargs {
    enable_thinking: Option<bool>,
}

impl ChatRequest {
    /// Parses a request's body.
    ///
    /// # Errors
    /// Returns an error (400) that names the missing, invalid or unsupported field.
    pub fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        let model = fields.need("model")?;
        let raw: Vec<Box<RawValue>> = fields.need("messages")?;
        if raw.is_empty() {
            return Err(ApiError::field("messages", "`messages` is empty"));
        }
        let mut pixels = PIXELS;
        let raw = raw.iter().enumerate();
        let messages: Result<Vec<_>, _> =
            raw.map(|(index, raw)| ChatMessage::read(index, raw, &mut pixels)).collect();
        let messages = messages?;
        let tools: Vec<Tool> = fields.take("tools")?.unwrap_or_default();
        let tool_choice = match fields.take::<Choice>("tool_choice")? {
            None => ToolChoice::Auto,
            Some(Choice::Word(word)) => match word.as_str() {
                "auto" => ToolChoice::Auto,
                "none" => ToolChoice::None,
                "required" => ToolChoice::Required,
                _ => {
                    let message =
                        format!("`tool_choice` = {word:?}: give auto, none, required or a function");
                    return Err(ApiError::field("tool_choice", message));
                }
            },
            Some(Choice::Named { function }) => ToolChoice::Function(function.name),
        };
        let parallel_tool_calls = fields.take("parallel_tool_calls")?;
        let kwargs: Option<TemplateKwargs> = fields.take("chat_template_kwargs")?;
        let thinking = kwargs.and_then(|kwargs| kwargs.enable_thinking);
        let metadata = fields.take("metadata")?.unwrap_or_default();
        let mut sampling = SamplingFields::take(&mut fields)?;
        sampling.take_chat_logprobs(&mut fields)?;
        // The newer name wins.
        sampling.max_tokens = fields.counted("max_completion_tokens", 0, usize::MAX)?.or(sampling.max_tokens);
        fields.drop_if_neutral("response_format", &[json!({ "type": "text" })])?;
        fields.drop_if_neutral("modalities", &[json!(["text"])])?;
        fields.drop_if_neutral("service_tier", &[json!("auto"), json!("default")])?;
        fields.drop_if_neutral("store", &[json!(false)])?;
        fields.finish()?;
        Ok(Self { model, messages, tools, tool_choice, parallel_tool_calls, thinking, metadata, sampling })
    }
}
