//! Pictures as decoder input: the vision towers of Qwen2-VL (Wang et al. (2024), "Qwen2-VL") and
//! Qwen2.5-VL (Bai et al. (2025), "Qwen2.5-VL Technical Report").
//!
//! | file | subject |
//! |---|---|
//! | `attention.rs` | attention inside windows of patches, forward and backward |
//! | `config.rs` | `vision_config` and the tokens around a picture |
//! | `image.rs` | decoding of PNG and JPEG files, within limits |
//! | `layout.rs` | tensors of the tower |
//! | `norm.rs` | norms of the tower's rows, forward and backward |
//! | `patches.rs` | the image processor: sizes, patches and their order |
//! | `pictures.rs` | table of pictures, and positions of tokens (M-RoPE) |
//! | `resize.rs` | bicubic resizing like Pillow |
//! | `split.rs` | matrix products of the tower, split over threads |
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
mod config;
mod encode;
mod image;
mod layout;
mod norm;
mod patches;
mod pictures;
mod resize;
mod split;
mod tower;

pub use config::{ImageSettings, TowerKind, VisionConfig, VisionTokens};
pub(crate) use encode::{
    Encoded, MOST_FEATURES, MOST_KEPT, encode, encode_backward, encode_one, numbered_by_rows,
};
pub use image::Image;
pub(crate) use layout::VisionLayout;
pub(crate) use patches::Prepared;
pub use patches::smart_resize;
pub use pictures::{FIRST_PICTURE_TOKEN, HeldPicture, PictureTokens, Pictures};
pub(crate) use tower::TowerWork;

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod image_tests;
#[cfg(test)]
mod tests;
