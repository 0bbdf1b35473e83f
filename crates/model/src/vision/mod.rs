//! Pictures as decoder input: the vision towers of Qwen2-VL (Wang et al. (2024), "Qwen2-VL") and
//! Qwen2.5-VL (Bai et al. (2025), "Qwen2.5-VL Technical Report").
//!
//! | file | subject |
//! |---|---|
//! | `attention.rs` | attention inside windows of patches, forward and backward |
//! | `norm.rs` | norms of the tower's rows, forward and backward |
//! | `patches.rs` | patches and their order |
//! | `split.rs` | products of the tower, split over threads |
//! | `tower.rs` | forward pass of the tower |
//! | `backward.rs` | backward pass of the tower |
//! | `encode.rs` | features of a batch, and their gradient |
//!
//! In a sequence, a picture is a run of token ids, starting at [`FIRST_PICTURE_TOKEN`], one for
//! each merged patch. [`Pictures::add`] assigns ids by content: equal pictures get equal ids, and
//! different pictures share none. Comparing token ids, as for shared prefixes and cached keys and
//! values, therefore works for pictures too. For these ids, a decoder uses the tower's features
//! instead of embeddings.
//!
//! Differs from `transformers`: videos are not supported.

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
