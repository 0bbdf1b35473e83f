//! Observation images, drawn only if the setting `pictures` of the environment names a folder.

pub mod canvas;
pub mod png;
mod store;
pub(crate) mod strokes;

pub use canvas::{Color, Picture};
pub use store::PictureStore;
