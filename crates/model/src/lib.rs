//! The policy: the only crate with tensors.

mod config;
pub mod engine;
mod error;
mod parameters;
mod tokenizer;

pub use config::ModelConfig;
pub use error::ModelError;
pub use parameters::{LayerLayout, Layout, Parameters, TensorInfo};
pub use tokenizer::{Tokenizer, TokenizerConfig};
