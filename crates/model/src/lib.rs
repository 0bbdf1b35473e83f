//! The policy: decoders with handwritten forward and backward passes, LoRA, AdamW, a sampling
//! engine, and Hugging Face file formats.
//!
//! Internal to the workspace: nothing here is stable, and the documentation leaves modules out.
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
//! let logprobs = learner.logprobs(&[&TokenSequence { tokens: vec![1, 2, 3, 4], spans }])?;
//! // Weights of zero find all 11 tokens equally likely.
//! assert!(logprobs[0].iter().all(|logprob| (logprob + 11f32.ln()).abs() < 1e-5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod backend;
#[doc(hidden)]
pub mod bert;
mod config;
mod cpu;
#[cfg(feature = "cuda")]
#[doc(hidden)]
pub mod cuda;
#[doc(hidden)]
pub mod engine;
mod error;
#[doc(hidden)]
pub mod files;
#[doc(hidden)]
pub mod layers;
mod ops;
mod packing;
mod pictures;
mod plan;
#[doc(hidden)]
pub mod testing;
mod train;
#[doc(hidden)]
pub mod vision;
mod weights;

pub use config::{Device, Family, ModelConfig, RopeScaling, Rotary, SpecialTokens};
pub use cpu::optimizer::{AdamWConfig, OptimizerState};
pub use error::ModelError;
pub use files::gguf::{GgufType, write_gguf};
pub use files::hf::{
    SaveOptions, WeightType, load_config, load_critic, load_model, read_config, save_model, save_model_as,
};
pub use files::peft::{AdapterBase, AdapterFile, is_adapter, load_adapter, save_adapter};
pub use ops::Real;
pub use ops::compute::{Compute, ComputePath};
pub use plan::{MemoryPlan, PicturePlan, PlanItem, PlanPhase, PlanSettings};
pub use train::{Critic, LearnerConfig, NativeLearner, Schedule, ScheduleKind, TakenGradient};
pub use weights::lora::{Adapter, AdapterLayout, AdapterPart, Branch, Joint, LoraConfig, Module};
pub use weights::{LayerLayout, ParameterLayout, Parameters, TensorInfo, Weights};
