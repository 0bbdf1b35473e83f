//! Pictures of observations; only drawn if the `pictures` setting of an environment names a folder.
//!
//! | file | subject |
//! |---|---|
//! | [`canvas`] | pictures in memory, and drawing |
//! | [`png`] | PNG files |
//! | `store` | a folder of pictures named by their content |
//! | `strokes` | letters and digits |

pub mod canvas;
pub mod png;
mod store;
pub(crate) mod strokes;

pub use canvas::{Color, Picture};
pub use store::PictureStore;
