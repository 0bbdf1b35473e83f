//! Images as decoder input: the vision towers of Qwen2-VL (Wang et al. (2024), "Qwen2-VL") and
//! Qwen2.5-VL (Bai et al. (2025), "Qwen2.5-VL Technical Report"). Videos are not supported.
//!
//! An image is a run of token ids from [`FIRST_PICTURE_TOKEN`] on, one per merged patch, which the
//! decoder replaces with the tower's features. [`Pictures::add`] assigns ids by content, so
//! comparing ids finds shared prefixes and cached keys and values for images as well.

mod attention;
mod backward;
mod encode;
mod norm;
mod patches;
mod split;
mod tower;

pub(crate) use encode::{
    Encoded, MOST_FEATURES, MOST_KEPT, encode, encode_backward, encode_one, numbered_by_rows,
};
pub(crate) use tower::TowerWork;

pub(crate) use crate::pictures::Prepared;
pub use crate::pictures::{
    FIRST_PICTURE_TOKEN, HeldPicture, Image, ImageSettings, PictureTokens, Pictures, TowerKind, VisionConfig,
    VisionTokens, smart_resize,
};
pub(crate) use crate::weights::VisionLayout;

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
pub(crate) mod tests;
