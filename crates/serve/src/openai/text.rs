//! Requests of `/v1/completions`.

use serde::Deserialize;
use serde_json::json;

use super::fields::Fields;
use super::{ApiError, SamplingFields};

/// Prompt of a text completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextPrompt {
    /// Text that still has to be tokenized.
    Text(String),
    /// Token ids.
    Tokens(Vec<u32>),
}

/// Prompts to continue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TextRequest {
    /// Name of the model.
    pub model: String,
    /// One or more prompts; choices are in the same order.
    pub prompts: Vec<TextPrompt>,
    /// Fields for sampling and streaming.
    pub sampling: SamplingFields,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Prompts {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    Several(Vec<Vec<u32>>),
}

impl TextRequest {
    /// Parses a request's body.
    ///
    /// # Errors
    /// Returns an error with status 400 that names the missing, invalid or unsupported field.
    pub fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        let model = fields.need("model")?;
        let prompts = match fields.need("prompt")? {
            Prompts::Text(text) => vec![TextPrompt::Text(text)],
            Prompts::Texts(texts) => texts.into_iter().map(TextPrompt::Text).collect(),
            Prompts::Tokens(tokens) => vec![TextPrompt::Tokens(tokens)],
            Prompts::Several(prompts) => prompts.into_iter().map(TextPrompt::Tokens).collect(),
        };
        if prompts.is_empty() {
            return Err(ApiError::field("prompt", "`prompt` is empty"));
        }
        let mut sampling = SamplingFields::take(&mut fields)?;
        sampling.take_text_logprobs(&mut fields)?;
        fields.drop_if_neutral("echo", &[json!(false)])?;
        fields.drop_if_neutral("suffix", &[json!("")])?;
        let best_of: Option<usize> = fields.take("best_of")?;
        if best_of.is_some_and(|best_of| best_of != sampling.n) {
            return Err(ApiError::unsupported("best_of", "`best_of` is not supported; leave it out"));
        }
        fields.finish()?;
        Ok(Self { model, prompts, sampling })
    }
}
