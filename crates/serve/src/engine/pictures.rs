//! Pictures in prompts.

use std::borrow::Cow;

use turnwise_model::vision::FIRST_PICTURE_TOKEN;

use super::models::Loaded;
use crate::openai::{ApiError, ChatRequest};

const MOST: usize = 64;

/// Inserts a request's images into its prompt.
///
/// # Errors
/// Rejects `messages` (400) if the model has no vision tower, there are too many images, an image
/// cannot be resized, or the text contains the image token.
pub(super) fn insert(model: &Loaded, request: &ChatRequest, prompt: Vec<u32>) -> Result<Vec<u32>, ApiError> {
    let fail = |reason: String| Err(ApiError::field("messages", format!("`messages`: {reason}")));
    let images: Vec<_> = request.messages.iter().flat_map(|message| &message.images).collect();
    if images.is_empty() {
        return Ok(prompt);
    }
    let Some(vision) = &model.vision else {
        return fail(format!("the model `{}` reads no pictures; send text", request.model));
    };
    if images.len() > MOST {
        return fail(format!("{} pictures are too many; send at most {MOST}", images.len()));
    }
    let mut pictures = Vec::new();
    for image in images {
        match vision.pictures.add(image, vision) {
            Ok(picture) => pictures.push(picture),
            Err(error) => return fail(error.to_string()),
        }
    }
    vision.insert(&prompt, &pictures).or_else(|error| fail(error.to_string()))
}

/// Replaces the internal ids of image tokens, which are valid only in this process, by the model's
/// image token.
pub(super) fn visible<'p>(model: &Loaded, prompt: &'p [u32]) -> Cow<'p, [u32]> {
    match &model.vision {
        Some(vision) if prompt.iter().any(|&token| token >= FIRST_PICTURE_TOKEN) => {
            let image = vision.tokens.image;
            prompt.iter().map(|&token| if token < FIRST_PICTURE_TOKEN { token } else { image }).collect()
        }
        _ => Cow::Borrowed(prompt),
    }
}

/// Rejects the internal ids of images in a prompt, because they may belong to another client's
/// images.
///
/// # Errors
/// Rejects `prompt` (400).
pub(super) fn check_tokens(tokens: &[u32]) -> Result<(), ApiError> {
    match tokens.iter().find(|&&token| token >= FIRST_PICTURE_TOKEN) {
        Some(token) => Err(ApiError::field(
            "prompt",
            format!("`prompt`: {token} is not a token of this model's vocabulary"),
        )),
        None => Ok(()),
    }
}
