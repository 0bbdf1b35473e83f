//! The policy: the only crate with tensors.

mod accelerator;
mod compute;
mod config;
mod critic;
#[cfg(feature = "cuda")]
pub mod cuda;
mod decoder;
pub mod engine;
mod error;
pub mod files;
#[cfg(test)]
mod golden_tests;
mod head;
mod hf;
mod init;
pub mod layers;
mod learner;
mod lora;
mod micro;
mod ops;
mod optimizer;
mod packing;
mod parameters;
mod passes;
mod plan;
mod projection;
mod rotary;
mod schedule;
pub mod testing;
mod weights;

pub use accelerator::Device;
pub use compute::{Compute, ComputePath};
pub use config::{Family, ModelConfig, SpecialTokens};
pub use critic::Critic;
pub use error::ModelError;
pub use hf::{
    SaveOptions, WeightType, load_config, load_critic, load_model, read_config, save_model, save_model_as,
};
pub use learner::{LearnerConfig, NativeLearner, TakenGradient};
pub use lora::{
    Adapter, AdapterBase, AdapterFile, AdapterLayout, AdapterPlace, Branch, Joint, LoraConfig, Module,
    is_adapter, load_adapter, save_adapter,
};
pub use ops::Real;
pub use optimizer::{AdamWConfig, OptimizerState};
pub use parameters::{LayerLayout, Layout, Parameters, TensorInfo};
pub use plan::{MemoryPlan, PlanItem, PlanPhase, PlanSettings};
pub use rotary::{RopeScaling, Rotary};
pub use schedule::{Schedule, ScheduleKind};
pub use weights::Weights;
