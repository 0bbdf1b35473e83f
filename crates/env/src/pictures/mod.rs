//! Pictures of observations; only drawn if the `pictures` setting of an environment names a folder.

pub mod canvas;
pub mod png;
mod store;
pub(crate) mod strokes;

pub use canvas::{Color, Picture};
pub use store::PictureStore;
