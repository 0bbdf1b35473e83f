//! Policy objectives: log-probabilities and advantages in, loss and its closed-form derivative out.
//!
//! Every objective here is built for a whole optimiser batch and then evaluated one sequence at a
//! time, in any order: all means are over the batch, so the loss and its gradient do not depend on
//! how the batch is cut into micro-batches, on padding or on packing. The arithmetic is f64; the
//! [`turnwise_core::Objective`] door converts from and to the f32 of a learner.

mod aggregation;
mod batch;
mod config;
mod entropy;
mod gradient;
mod kl;
mod loss;
mod normalization;
mod ppo;
mod presets;
mod registry;
mod selective;
mod supervised;
mod term;
mod value;

pub use aggregation::{Aggregation, token_weights};
pub use batch::{Advantages, ObjectiveBatch, ObjectiveSequence};
pub use config::{Clip, KlConfig, ObjectiveConfig, RatioKind};
pub use entropy::entropy_bonus;
pub use gradient::Gradient;
pub use kl::{AdaptiveKl, KlEstimator, KlPlace, kl_estimate, reward_kl};
pub use loss::{Loss, MinibatchLoss};
pub use normalization::{
    BiasNorm, BiasObjective, BiasSum, ClippingBias, ClippingWatch, NormalizationConfig, Subset,
};
pub use ppo::{PolicyObjective, Surrogate, surrogate};
pub use registry::Registry;
pub use selective::{
    BlindLogprobs, BlindMask, FullKls, Penalty, SelectiveConfig, SelectiveEstimator, SelectiveGradient,
    SelectiveObjective,
};
pub use supervised::{SupervisedObjective, SupervisedSequence};
pub use term::{LossTerm, Minibatch, ObservedScaling, TermParts};
pub use value::{ValueConfig, ValueGradient, ValueObjective, ValueSequence};
