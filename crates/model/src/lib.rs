//! The policy: decoders with handwritten forward and backward passes, LoRA, AdamW, a sampling
//! engine, and Hugging Face files.
//!
//! ```
//! use turnwise_core::{Learner as _, TokenSequence, TurnSpan};
//! use turnwise_model::{LearnerConfig, ModelConfig, NativeLearner, Parameters};
//!
//! let parameters: Parameters<f32> = Parameters::zeros(ModelConfig {
//!     vocab_size: 11,
//!     hidden_size: 16,
//!     intermediate_size: 32,
//!     num_hidden_layers: 1,
//!     num_attention_heads: 2,
//!     num_key_value_heads: 1,
//!     head_dim: 8,
//!     max_position_embeddings: 64,
//!     ..ModelConfig::default()
//! });
//! let mut learner = NativeLearner::new(parameters, LearnerConfig::default())?;
//! let spans = vec![TurnSpan { turn: 0, start: 2, end: 4 }];
//! let logprobs = learner.logprobs(&[TokenSequence { tokens: vec![1, 2, 3, 4], spans }])?;
//! // Weights of zero find all 11 tokens equally likely.
//! assert!(logprobs[0].iter().all(|logprob| (logprob + 11f32.ln()).abs() < 1e-5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod accelerator;
pub mod bert;
mod compute;
mod config;
mod critic;
#[cfg(feature = "cuda")]
pub mod cuda;
mod decoder;
mod decoder_layer;
pub mod engine;
mod error;
pub mod files;
mod gguf;
#[cfg(test)]
mod golden_tests;
mod head;
mod hf;
mod init;
mod lane_passes;
pub mod layers;
mod learner;
mod lora;
mod micro;
mod ops;
mod optimizer;
mod packing;
mod parameters;
mod pass_over;
mod plan;
mod projection;
mod rotary;
mod schedule;
pub mod testing;
pub mod vision;
mod weights;

pub use accelerator::Device;
pub use compute::{Compute, ComputePath};
pub use config::{Family, ModelConfig, SpecialTokens};
pub use critic::Critic;
pub use error::ModelError;
pub use gguf::{GgufType, write_gguf};
pub use hf::{
    SaveOptions, WeightType, load_config, load_critic, load_model, read_config, save_model, save_model_as,
};
pub use learner::{LearnerConfig, NativeLearner, TakenGradient};
pub use lora::{
    Adapter, AdapterBase, AdapterFile, AdapterLayout, AdapterPart, Branch, Joint, LoraConfig, Module,
    is_adapter, load_adapter, save_adapter,
};
pub use ops::Real;
pub use optimizer::{AdamWConfig, OptimizerState};
pub use parameters::{LayerLayout, ParameterLayout, Parameters, TensorInfo};
pub use plan::{MemoryPlan, PicturePlan, PlanItem, PlanPhase, PlanSettings};
pub use rotary::{RopeScaling, Rotary};
pub use schedule::{Schedule, ScheduleKind};
pub use weights::Weights;
