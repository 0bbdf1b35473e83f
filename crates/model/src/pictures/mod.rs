//! Images in sequences: preprocessing, and the table of images stored in a model's config.
//!
//! | file | subject |
//! |---|---|
//! | `config.rs` | `vision_config` and the special tokens around an image |
//! | `image.rs` | decoding PNG and JPEG files to RGB, with size limits |
//! | `prepared.rs` | image sizes chosen by the image processor |
//! | `registry.rs` | the table of images in sequences, and token positions (M-RoPE) |
//! | `resize.rs` | bicubic resizing that matches PIL |

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
