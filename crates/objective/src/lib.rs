//! Policy objectives: log-probabilities and advantages in, loss and its closed-form derivative out.
//!
//! Every objective here is built for a whole optimiser batch and then evaluated one sequence at a
//! time, in any order: all means are over the batch, so the loss and its gradient do not depend on
//! how the batch is cut into micro-batches, on padding or on packing. The arithmetic is f64; the
//! [`turnwise_core::Objective`] implementation converts from and to the f32 of a learner.
//!
//! ```
//! use turnwise_objective::{Clip, Surrogate, surrogate};
//!
//! // min(w A, clip(w, 0.8, 1.2) A): a ratio of 1.5 with a positive advantage is cut at 1.2.
//! assert_eq!(surrogate(1.5, 2.0, Clip::default(), None), (2.4, Surrogate::ClippedHigh));
//! assert_eq!(surrogate(1.5, -2.0, Clip::default(), None), (-3.0, Surrogate::Unclipped));
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `loss` | a configured loss: the passes it needs, the objective of each minibatch |
//! | `ppo`, `aggregation`, `kl`, `entropy` | clipped surrogate and ratios, means over tokens, KL penalty, entropy bonus |
//! | `selective`, `normalization` | terms with keys of their own in the configuration |
//! | `term`, `registry` | what a term is, and terms by name, open for those of other crates |
//! | `value`, `supervised` | the critic's loss, the warm start's loss |
//! | `batch`, `gradient`, `config` | numbers in, numbers out, settings |

mod aggregation;
mod batch;
mod config;
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
pub use entropy::entropy_bonus;
pub use gradient::Gradient;
pub use kl::{AdaptiveKl, KlEstimator, KlPlace, kl_estimate, reward_kl};
pub use loss::{Loss, MinibatchLoss};
pub use normalization::{
    BiasNorm, BiasObjective, BiasSum, ClippingBias, ClippingRecorder, NormalizationConfig, Subset,
};
pub use ppo::{PolicyObjective, Surrogate, surrogate};
pub use registry::Registry;
pub use selective::{
    FullKls, MaskedLogprobs, SelectiveConfig, SelectiveEstimator, SelectiveGradient, SelectiveObjective,
    SelectivePenalty,
};
pub use supervised::{SupervisedObjective, SupervisedSequence};
pub use term::{LossTerm, Minibatch, ObservedScaling, TermParts};
pub use value::{ValueConfig, ValueGradient, ValueObjective, ValueSequence};
