//! The pictures of sequences, which a model's config holds, and their preparation.
//!
//! | file | subject |
//! |---|---|
//! | `config.rs` | `vision_config` and the tokens around a picture |
//! | `image.rs` | PNG and JPEG files as RGB, bounded |
//! | `prepared.rs` | the image processor: sizes |
//! | `registry.rs` | the pictures that sequences refer to, and positions of tokens (M-RoPE) |
//! | `resize.rs` | bicubic resizing as PIL does it |

mod config;
mod image;
mod prepared;
mod registry;
mod resize;

#[cfg(test)]
mod image_tests;

pub use config::{ImageSettings, TowerKind, VisionConfig, VisionTokens};
pub use image::Image;
pub(crate) use prepared::Prepared;
pub use prepared::smart_resize;
pub use registry::{FIRST_PICTURE_TOKEN, HeldPicture, PictureTokens, Pictures};
