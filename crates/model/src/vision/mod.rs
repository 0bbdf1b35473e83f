//! Pictures for a decoder: the vision towers of Qwen2-VL (Wang et al. (2024), "Qwen2-VL") and Qwen2.5-VL (Bai et al.
//! (2025), "Qwen2.5-VL Technical Report").
//!
//! | file | subject |
//! |---|---|
//! | `attention.rs` | attention inside windows of patches, forward and backward |
//! | `norm.rs` | norms of the tower's rows, forward and backward |
//! | `patches.rs` | patches and their order |
//! | `split.rs` | products of the tower, split over threads |
//! | `tower.rs` | patches to features: forward |
//! | `backward.rs` | the tower's gradient |
//! | `encode.rs` | features of all pictures of a batch, and their gradient |
//!
//! A picture in a sequence is a run of token ids from [`FIRST_PICTURE_TOKEN`] on, one for each of its merged
//! patches. [`Pictures::add`] assigns them by content: equal pictures have equal ids, and different pictures share
//! no id. So everything that compares token ids works for pictures too, such as shared prefixes and cached keys and
//! values. For these ids, a decoder reads features of the tower instead of embeddings.
//!
//! Differs from `transformers`: pictures are still images. Videos cannot be added.

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
