use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::pictures::{Pictures, VisionConfig};
use crate::vision::{MOST_FEATURES, encode_one};

/// A vision tower and the images it has encoded, shared by engines with the same weights.
#[derive(Debug)]
pub(super) struct EngineVision {
    config: VisionConfig,
    width: usize,
    data: Vec<f32>,
    /// Features of each image, keyed by the image's first token id.
    known: Mutex<BTreeMap<u32, Arc<Vec<f32>>>>,
}

impl EngineVision {
    pub(super) fn new(config: VisionConfig, width: usize, data: Vec<f32>) -> Self {
        Self { config, width, data, known: Mutex::default() }
    }

    pub(super) fn sections(&self) -> [usize; 3] {
        self.config.mrope_section
    }

    pub(super) fn pictures(&self) -> &Pictures {
        &self.config.pictures
    }

    /// Appends the features of an image token. The token's request keeps the image in memory.
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
        // Without the lock, so that other threads can encode.
        let features = Arc::new(encode_one(&self.config, self.width, &self.data, first)?);
        let mut known = lock();
        if known.values().map(|features| features.len()).sum::<usize>() > MOST_FEATURES {
            known.clear();
        }
        known.insert(first, Arc::clone(&features));
        Some(features)
    }
}
