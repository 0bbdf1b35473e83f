//! The policy: the only crate with tensors.

mod config;
mod decoder;
pub mod engine;
mod error;
mod files;
#[cfg(test)]
mod golden_tests;
mod hf;
mod init;
mod learner;
mod ops;
mod optimizer;
mod packing;
mod parameters;
mod schedule;
mod tokenizer;
pub mod turnrd;

pub use config::ModelConfig;
pub use error::ModelError;
pub use hf::{load_model, save_model};
pub use learner::{LearnerConfig, NativeLearner};
pub use ops::Real;
pub use optimizer::{AdamWConfig, OptimizerState};
pub use parameters::{LayerLayout, Layout, Parameters, TensorInfo};
pub use schedule::{Schedule, ScheduleKind};
pub use tokenizer::{Tokenizer, TokenizerConfig};
