//! Images in prompts for inference servers.
//!
//! The learner's image tokens are valid only in its own process. For each image, a server gets one
//! image token and a PNG, and repeats the token for each merged patch. The server returns the
//! prompt that it parsed, which [`PromptPictures::check`] compares with the learner's. The PNG
//! already has the size that the vision tower needs, because resizing by Pillow and torchvision
//! differs by up to two levels per channel.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use turnwise_core::hexadecimal;
use turnwise_model::vision::{FIRST_PICTURE_TOKEN, VisionConfig};

#[derive(Default)]
pub(crate) struct PromptPictures {
    image_token: u32,
    shown: Vec<Shown>,
}

struct Shown {
    place: Range<usize>,
    sha256: String,
    url: String,
}

impl PromptPictures {
    /// Finds a prompt's images.
    ///
    /// # Errors
    /// Fails if the model has no vision tower, if the prompt contains only part of an image or an
    /// image that has been freed, or if the text contains the image token.
    pub(crate) fn of(prompt: &[u32], vision: Option<&VisionConfig>) -> Result<Self, String> {
        if prompt.iter().all(|&token| token < FIRST_PICTURE_TOKEN) {
            return Ok(Self::default());
        }
        let vision = vision.ok_or("the prompt shows a picture, and the policy reads none")?;
        let image_token = vision.tokens.image;
        if prompt.contains(&image_token) {
            return Err(format!("the text of the prompt has the image token {image_token}"));
        }
        let mut shown = Vec::new();
        for (place, picture) in vision.pictures.shown(prompt)? {
            let file = picture.resized(vision).encode_png()?;
            let sha256 = hexadecimal(&Sha256::digest(&file));
            let url = format!("data:image/png;base64,{}", STANDARD.encode(&file));
            shown.push(Shown { place, sha256, url });
        }
        Ok(Self { image_token, shown })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }

    /// Replaces each image by one image token.
    pub(crate) fn collapsed(&self, prompt: &[u32]) -> Vec<u32> {
        self.replaced(prompt, |_| 1)
    }

    pub(crate) fn expanded(&self, prompt: &[u32]) -> Vec<u32> {
        self.replaced(prompt, Range::len)
    }

    fn replaced(&self, prompt: &[u32], count: impl Fn(&Range<usize>) -> usize) -> Vec<u32> {
        let (mut tokens, mut position) = (Vec::with_capacity(prompt.len()), 0);
        for Shown { place, .. } in &self.shown {
            tokens.extend(&prompt[position..place.start]);
            tokens.extend(std::iter::repeat_n(self.image_token, count(place)));
            position = place.end;
        }
        tokens.extend(&prompt[position..]);
        tokens
    }

    /// Returns the images in vLLM's format. vLLM caches an image's features by `uuid`, which
    /// therefore depends on the `version` of the weights.
    pub(crate) fn parts(&self, version: Option<&str>) -> Value {
        let part = |Shown { sha256, url, .. }: &Shown| {
            let uuid = version.map_or_else(|| sha256.clone(), |version| format!("{version}-{sha256}"));
            json!({ "type": "image_url", "url": url, "uuid": uuid })
        };
        self.shown.iter().map(part).collect()
    }

    /// Checks the prompt that a server parsed.
    ///
    /// # Errors
    /// Fails if the response lacks the prompt, or contains one that differs from the one sent.
    pub(crate) fn check(&self, prompt: &[u32], read: Option<&[u32]>) -> Result<(), String> {
        if self.is_empty() {
            return Ok(());
        }
        let Some(read) = read else {
            return Err("does not return the prompt that it has read, and may have left out its pictures \
                        (content_parts, return_token_ids); take vLLM 0.32 or newer"
                .into());
        };
        let expected = self.expanded(prompt);
        if read == expected {
            return Ok(());
        }
        let count = |tokens: &[u32]| tokens.iter().filter(|&&token| token == self.image_token).count();
        let (own, theirs) = (count(&expected), count(read));
        Err(if own == theirs {
            format!(
                "has read another prompt of {} tokens than the {} that it was sent",
                read.len(),
                expected.len()
            )
        } else {
            format!(
                "reads the pictures of a prompt as {theirs} tokens, and the learner as {own}; it must serve policy.model \
                 with the folder's preprocessor_config.json, without --mm-processor-kwargs"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use turnwise_core::{Purpose, Seed};
    use turnwise_model::ModelConfig;
    use turnwise_model::vision::Image;

    use super::*;

    fn vision() -> (VisionConfig, Image) {
        let config = r#"{ "model_type": "qwen2_5_vl", "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48,
            "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
            "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": true, "initializer_range": 0.2,
            "rope_scaling": { "type": "mrope", "mrope_section": [1, 2, 1] },
            "vision_config": { "depth": 1, "hidden_size": 16, "intermediate_size": 20, "out_hidden_size": 32,
                "in_chans": 3, "window_size": 16, "fullatt_block_indexes": [0], "num_heads": 2, "patch_size": 4 },
            "image_token_id": 60, "video_token_id": 57, "vision_start_token_id": 58, "vision_end_token_id": 59 }"#;
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), config).unwrap();
        let config: ModelConfig = turnwise_model::load_config(folder.path()).unwrap();
        let mut vision = config.vision.unwrap();
        vision.image.min_pixels = 64;
        let mut draws = Seed::derive(1, Purpose::Init, &[]).rng();
        let rgb = (0..16 * 24 * 3).map(|_| draws.bits() as u8).collect();
        (vision, Image { width: 24, height: 16, rgb })
    }

    #[test]
    fn a_server_gets_one_token_and_the_pixels_that_the_tower_reads() {
        let (vision, image) = vision();
        let ids = vision.pictures.add(&image, &vision).unwrap().ids();
        let prompt: Vec<u32> = [58].into_iter().chain(ids).chain([59, 7]).collect();
        let pictures = PromptPictures::of(&prompt, Some(&vision)).unwrap();
        let more = [&prompt[..], &[60]].concat();
        assert_eq!(pictures.collapsed(&more), [58, 60, 59, 7, 60]);
        assert_eq!(pictures.expanded(&more), [58, 60, 60, 60, 60, 60, 60, 59, 7, 60]);
        let parts = pictures.parts(None);
        let url = parts[0]["url"].as_str().unwrap().strip_prefix("data:image/png;base64,").unwrap();
        assert_eq!(Image::decode(&STANDARD.decode(url).unwrap()).unwrap(), image);
        let uuid = parts[0]["uuid"].as_str().unwrap();
        assert_eq!(pictures.parts(Some("v2"))[0]["uuid"], format!("v2-{uuid}"));
    }

    #[test]
    fn a_server_that_reads_other_pictures_is_rejected() {
        let (vision, image) = vision();
        let ids = vision.pictures.add(&image, &vision).unwrap().ids();
        let prompt: Vec<u32> = [58].into_iter().chain(ids).chain([59]).collect();
        let pictures = PromptPictures::of(&prompt, Some(&vision)).unwrap();
        let whole = [58, 60, 60, 60, 60, 60, 60, 59];
        assert!(pictures.check(&prompt, Some(&whole)).is_ok());
        let refused = |read: Option<&[u32]>| pictures.check(&prompt, read).unwrap_err();
        assert!(refused(None).contains("vLLM 0.32"));
        let fewer = refused(Some(&[58, 60, 60, 59]));
        assert!(fewer.contains("as 2 tokens, and the learner as 6"), "{fewer}");
        assert!(refused(Some(&[59, 60, 60, 60, 60, 60, 60, 58])).contains("another prompt"));
        assert!(PromptPictures::of(&[1, 2], None).unwrap().check(&[1, 2], None).is_ok());

        let reason =
            |prompt: &[u32], vision| PromptPictures::of(prompt, vision).map(drop).unwrap_err().clone();
        assert!(reason(&prompt, None).contains("the policy reads none"));
        assert!(reason(&prompt[..4], Some(&vision)).contains("is cut"));
        assert!(reason(&[&prompt[..], &[60]].concat(), Some(&vision)).contains("the image token 60"));
    }
}
