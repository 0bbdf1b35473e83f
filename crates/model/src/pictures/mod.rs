//! Images in sequences: preprocessing, and the table of images in a model's config.

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
