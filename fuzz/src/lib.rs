//! The functions that the fuzz targets call; see `README.md`.

pub mod parsers;
#[cfg(feature = "serve")]
pub mod requests;
pub mod seeds;
