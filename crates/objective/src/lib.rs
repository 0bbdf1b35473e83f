//! Policy objectives: a loss and its closed-form derivative from log-probs and advantages.
//!
//! An objective is built for a whole optimizer batch and evaluated one sequence at a time, in any
//! order. All means are over the batch, so results do not depend on micro-batches, padding or
//! packing. All arithmetic is in f64.
//!
//! ```
//! use turnwise_objective::{Clip, Surrogate, surrogate};
//!
//! // min(w A, clip(w, 0.8, 1.2) A): a ratio of 1.5 with a positive advantage is cut at 1.2.
//! assert_eq!(surrogate(1.5, 2.0, Clip::default(), None), (2.4, Surrogate::ClippedHigh));
//! assert_eq!(surrogate(1.5, -2.0, Clip::default(), None), (-3.0, Surrogate::Unclipped));
//! ```

mod aggregation;
mod batch;
mod config;
mod correction;
mod entropy;
mod gradient;
mod kl;
mod loss;
mod normalization;
mod ppo;
mod registry;
mod selective;
mod supervised;
mod term;
mod value;

pub use aggregation::{Aggregation, token_weights};
pub use batch::{Advantages, LeftOut, ObjectiveBatch, ObjectiveSequence};
pub use config::{Clip, KlConfig, ObjectiveConfig, RatioKind};
pub use correction::{CorrectionLevel, CorrectionMode, CorrectionSums, RolloutCorrection};
pub use entropy::entropy_bonus;
pub use gradient::Gradient;
pub use kl::{AdaptiveKl, KlEstimator, KlPlace, kl_estimate, reward_kl};
pub use loss::{Loss, MinibatchLoss};
pub use normalization::{BiasNorm, BiasSum, ClippingBias, NormalizationConfig};
pub use ppo::{PolicyObjective, Surrogate, surrogate};
pub use registry::Registry;
pub use selective::{
    FullKls, MaskedLogprobs, SelectiveConfig, SelectiveEstimator, SelectiveGradient, SelectiveObjective,
    SelectivePenalty,
};
pub use supervised::SupervisedObjective;
pub use term::{LossTerm, Minibatch, TermObjective};
pub use value::{ValueConfig, ValueGradient, ValueObjective};
