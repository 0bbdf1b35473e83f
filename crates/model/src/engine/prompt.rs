use turnwise_core::{RequestId, SampleError, SampleRequest};

use super::NativeEngine;
use super::slot::Held;
use crate::pictures::FIRST_PICTURE_TOKEN;

impl NativeEngine {
    /// Returns the prompt's images.
    pub(super) fn check_prompt(
        &self,
        request: RequestId,
        asked: &SampleRequest,
    ) -> Result<Held, SampleError> {
        let vocabulary = Some(self.backend.vocabulary());
        let Some(pictures) = self.backend.pictures() else {
            return asked.check_prompt(request, self.max_model_len, vocabulary).map(|()| Vec::new());
        };
        let fail = |reason: String| SampleError::Request { request, reason };
        let held = pictures.hold(&asked.prompt).map_err(fail)?;
        // Image tokens are not in the vocabulary.
        let text = |&token: &u32| if token < FIRST_PICTURE_TOKEN { token } else { 0 };
        let words = SampleRequest { prompt: asked.prompt.iter().map(text).collect(), ..asked.clone() };
        words.check_prompt(request, self.max_model_len, vocabulary).map(|()| held)
    }
}
