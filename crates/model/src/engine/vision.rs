//! Pictures in prompts: their positions, and features shared by all engines with the same weights.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use turnwise_core::{RequestId, SampleError, SampleRequest};

use super::NativeEngine;
use super::slot::Held;
use crate::vision::{FIRST_PICTURE_TOKEN, MOST_FEATURES, VisionConfig, encode_one};

#[derive(Debug)]
pub(super) struct EngineVision {
    config: VisionConfig,
    width: usize,
    data: Vec<f32>,
    /// Features, keyed by a picture's first token.
    known: Mutex<BTreeMap<u32, Arc<Vec<f32>>>>,
}

impl NativeEngine {
    pub(super) fn check_prompt(
        &self,
        request: RequestId,
        asked: &SampleRequest,
    ) -> Result<Held, SampleError> {
        let vocabulary = Some(self.backend.vocabulary());
        let Some(vision) = self.backend.vision() else {
            return asked.check_prompt(request, self.max_model_len, vocabulary).map(|()| Vec::new());
        };
        let fail = |reason: String| SampleError::Request { request, reason };
        let pictures = vision.config.pictures.hold(&asked.prompt).map_err(fail)?;
        // Picture tokens are outside every vocabulary.
        let text = |&token: &u32| if token < FIRST_PICTURE_TOKEN { token } else { 0 };
        let words = SampleRequest { prompt: asked.prompt.iter().map(text).collect(), ..asked.clone() };
        words.check_prompt(request, self.max_model_len, vocabulary).map(|()| pictures)
    }
}

impl EngineVision {
    pub(super) fn new(config: VisionConfig, width: usize, data: Vec<f32>) -> Self {
        Self { config, width, data, known: Mutex::default() }
    }

    pub(super) fn sections(&self) -> [usize; 3] {
        self.config.mrope_section
    }

    pub(super) fn places(&self, tokens: &[u32]) -> Vec<[u32; 3]> {
        if tokens.iter().all(|&token| token < FIRST_PICTURE_TOKEN) {
            return Vec::new();
        }
        let mut before = None;
        let place = |&token: &u32| {
            let place = self.config.pictures.place_after(before, token);
            before = Some((token, place));
            place
        };
        tokens.iter().map(place).collect()
    }

    /// Appends the features of a picture's token. The request keeps the picture in memory.
    pub(super) fn embed(&self, token: u32, to: &mut Vec<f32>) {
        let end = to.len() + self.width;
        let picture = self.config.pictures.of_token(token);
        if let Some(picture) = picture
            && let Some(features) = self.features(picture.first)
        {
            to.extend_from_slice(&features[(token - picture.first) as usize * self.width..][..self.width]);
        }
        to.resize(end, 0.0);
    }

    fn features(&self, first: u32) -> Option<Arc<Vec<f32>>> {
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = lock().get(&first) {
            return Some(Arc::clone(found));
        }
        // Outside the lock, so that another thread can encode another picture.
        let features = Arc::new(encode_one(&self.config, self.width, &self.data, first)?);
        let mut known = lock();
        if known.values().map(|features| features.len()).sum::<usize>() > MOST_FEATURES {
            known.clear();
        }
        known.insert(first, Arc::clone(&features));
        Some(features)
    }
}

/// Appends the position of `token`, which follows `last`, in a prompt with pictures.
pub(super) fn add_place(vision: Option<&EngineVision>, places: &mut Vec<[u32; 3]>, last: u32, token: u32) {
    if let (Some(vision), Some(&place)) = (vision, places.last()) {
        places.push(vision.config.pictures.place_after(Some((last, place)), token));
    }
}
