//! Images as decoder input: the vision towers of Qwen2-VL (Wang et al. (2024), "Qwen2-VL") and
//! Qwen2.5-VL (Bai et al. (2025), "Qwen2.5-VL Technical Report").
//!
//! | file | subject |
//! |---|---|
//! | `attention.rs` | attention inside windows of patches, forward and backward |
//! | `norm.rs` | norms of the tower's rows, forward and backward |
//! | `patches.rs` | patches and their order |
//! | `split.rs` | matrix products of the tower, split over threads |
//! | `tower.rs` | forward pass of the tower |
//! | `backward.rs` | backward pass of the tower |
//! | `encode.rs` | features of the images in a batch, and their gradient |
//!
//! In a sequence, an image is a run of token ids starting at [`FIRST_PICTURE_TOKEN`], one for each
//! merged patch. [`Pictures::add`] assigns ids by content. Identical images get equal ids, and
//! different images have no ids in common. Comparing token ids, for example to find shared prefixes
//! or cached keys and values, therefore works for images as well. For these ids, the decoder uses
//! the tower's features instead of embeddings.
//!
//! Unlike in `transformers`, videos are not supported.

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
