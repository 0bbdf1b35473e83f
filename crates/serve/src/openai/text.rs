//! Requests of `/v1/completions`.

use serde::Deserialize;
use serde_json::json;

use super::fields::Fields;
use super::{ApiError, SamplingFields};

/// Text completion prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextPrompt {
    /// Text to tokenize.
    Text(String),
    /// Token ids.
    Tokens(Vec<u32>),
}

/// Prompts to continue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TextRequest {
    /// Model name.
    pub model: String,
    /// Prompts, in the order of choices.
    pub prompts: Vec<TextPrompt>,
    /// Sampling and streaming fields.
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
    /// Returns an error (400) that names the missing, invalid or unsupported field.
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
