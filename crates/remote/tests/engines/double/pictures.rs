//! Pictures beside tokens, as in vLLM 0.32: a data URL for each image token.

use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use turnwise_model::ModelConfig;
use turnwise_model::vision::{FIRST_PICTURE_TOKEN, Image};

use super::{Asked, Inner};

/// Reads the pictures of a request.
pub(super) fn read(parts: &Value) -> Vec<Image> {
    let picture = |part: &Value| {
        assert_eq!(part["type"], "image_url");
        let file = part["url"].as_str().unwrap().strip_prefix("data:image/png;base64,").unwrap();
        Image::decode(&STANDARD.decode(file).unwrap()).unwrap()
    };
    parts.as_array().into_iter().flatten().map(picture).collect()
}

/// Puts the pictures into the prompt. Returns the prompt as the server says that it has read it; `None` from a server that knows
/// no pictures.
pub(super) fn insert(state: &Inner, config: &ModelConfig, asked: &mut Asked) -> Option<Vec<u32>> {
    let on = |switch: &AtomicBool| switch.load(Ordering::Relaxed);
    if on(&state.switches.knows_no_pictures) {
        return None;
    }
    if let Some(vision) = config.vision.as_ref().filter(|_| !asked.pictures.is_empty()) {
        let mut vision = vision.clone();
        if on(&state.switches.other_sizes) {
            vision.image.max_pixels /= 4;
        }
        let pictures = asked.pictures.iter().cloned().map(|mut image| {
            if on(&state.switches.blind) {
                image.rgb.fill(0);
            }
            vision.pictures.add(&image, &vision).unwrap()
        });
        let pictures: Vec<_> = pictures.collect();
        // A response that goes on may have sampled the image token: only the first ones are placeholders.
        let places = asked.prompt.iter().enumerate().filter(|(_, token)| **token == vision.tokens.image);
        let end = places.map(|(index, _)| index + 1).nth(pictures.len() - 1).unwrap();
        let rest = asked.prompt.split_off(end);
        asked.prompt = vision.insert(&asked.prompt, &pictures).unwrap();
        asked.prompt.extend(rest);
    }
    let image = config.vision.as_ref().map_or(0, |vision| vision.tokens.image);
    let said = |&token: &u32| if token < FIRST_PICTURE_TOKEN { token } else { image };
    Some(asked.prompt.iter().map(said).collect())
}
