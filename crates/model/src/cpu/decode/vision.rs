//! Pictures of prompts: places, and features, which all engines of the same weights share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::pictures::{FIRST_PICTURE_TOKEN, Prepared, VisionConfig};
use crate::vision::{MOST_FEATURES, encode_one};

/// A vision tower with the features of pictures that it has encoded.
#[derive(Debug)]
pub(crate) struct EngineVision {
    config: VisionConfig,
    /// Width of the decoder.
    width: usize,
    /// The tower's weights.
    data: Vec<f32>,
    /// Features by a picture's first token.
    known: Mutex<BTreeMap<u32, Arc<Vec<f32>>>>,
}

impl EngineVision {
    pub(crate) fn new(config: VisionConfig, width: usize, data: Vec<f32>) -> Self {
        Self { config, width, data, known: Mutex::default() }
    }

    /// Returns the pairs of a head that turn by time, row and column.
    pub(crate) fn sections(&self) -> [usize; 3] {
        self.config.mrope_section
    }

    /// Holds the pictures of a prompt in memory; rejects tokens of pictures that are not there.
    pub(crate) fn hold(&self, prompt: &[u32]) -> Result<Vec<Arc<Prepared>>, String> {
        self.config.pictures.hold(prompt)
    }

    /// Returns the places of a prompt's tokens; none if no picture is among them.
    pub(crate) fn places(&self, tokens: &[u32]) -> Vec<[u32; 3]> {
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

    /// Appends the features of a picture's token. The picture is in memory, because its request holds it.
    pub(crate) fn embed(&self, token: u32, to: &mut Vec<f32>) {
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
        // Outside of the lock: another thread may encode another picture meanwhile.
        let features = Arc::new(encode_one(&self.config, self.width, &self.data, first)?);
        let mut known = lock();
        if known.values().map(|features| features.len()).sum::<usize>() > MOST_FEATURES {
            known.clear();
        }
        known.insert(first, Arc::clone(&features));
        Some(features)
    }
}

/// Appends the place of `token`, which follows the token `last`, to those of a prompt with pictures.
pub(crate) fn add_place(vision: Option<&EngineVision>, places: &mut Vec<[u32; 3]>, last: u32, token: u32) {
    if let (Some(vision), Some(&place)) = (vision, places.last()) {
        places.push(vision.config.pictures.place_after(Some((last, place)), token));
    }
}
