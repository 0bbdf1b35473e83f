//! Credit assignment: estimators give one advantage per turn, refinements change them.
//!
//! Numbers in, numbers out: no tensors, no I/O. All statistics are computed in f64.
//!
//! ```
//! use turnwise_core::Batch;
//! use turnwise_credit::{CreditConfig, Pipeline};
//!
//! let pipeline = Pipeline::from_config(&CreditConfig::default())?;
//! assert!(pipeline.run(&Batch::default())?.0.is_empty());
//! # Ok::<(), turnwise_credit::CreditError>(())
//! ```

pub mod aem;
pub mod anchor;
pub mod embedding;
pub mod empg;
pub mod entropies;
pub mod gae;
pub mod gigpo;
pub mod grpo;
pub mod has;
pub mod hgpo;
pub mod outlier;
pub mod overlong;
pub mod rloo;
pub mod salt;
pub mod scores;
pub mod selection;
pub mod similarity;
pub mod statistics;

mod config;
mod error;
mod explanation;
mod hashing;
mod pipeline;
mod presets;

pub use config::{CreditConfig, EstimatorConfig, RefinementConfig};
pub use error::CreditError;
pub use explanation::{Explanation, Explanations, attach_explanations};
pub use pipeline::{CreditReport, Pipeline};
pub use presets::PRESETS;
pub use turnwise_core::{Facts, StageRecord};

use gae::TokenAdvantages;
use turnwise_core::Batch;

/// One advantage per turn: `[group][trajectory][turn]`, in the order of the batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnAdvantages(pub Vec<Vec<Vec<f64>>>);

/// Turns a text into a vector whose direction is its meaning.
pub trait Embedder: Send + Sync {
    /// The vector; all vectors of one embedder have the same length.
    fn embed(&self, text: &str) -> Vec<f32>;
}

/// What credit is computed from.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// The trajectories.
    pub batch: &'a Batch,
    /// The run's seed, for the random parts of a method.
    pub seed: u64,
    /// Embeds observations; needed where states are matched by embedding.
    pub embedder: Option<&'a dyn Embedder>,
    /// Gives the per-turn credits of `decomposer = "external"`.
    pub decomposer: Option<&'a dyn has::Decomposer>,
    /// The critic's value of every response token; needed by `ppo`.
    pub values: Option<&'a gae::TokenTable>,
}

impl<'a> Inputs<'a> {
    /// The batch alone, with seed 0.
    pub fn new(batch: &'a Batch) -> Self {
        Self { batch, seed: 0, embedder: None, decomposer: None, values: None }
    }
}

/// A batch in, one advantage per turn out.
pub trait Estimator: Send + Sync {
    /// The method's config name.
    fn name(&self) -> &'static str;

    /// The advantages of every turn of the batch.
    fn advantages(
        &self,
        inputs: &Inputs<'_>,
        explanation: &mut Explanation,
    ) -> Result<TurnAdvantages, CreditError>;

    /// Advantages and value targets of every response token, for an estimator that has them.
    fn token_advantages(&self, inputs: &Inputs<'_>) -> Result<Option<TokenAdvantages>, CreditError> {
        let _ = inputs;
        Ok(None)
    }
}

/// Advantages in, advantages out.
pub trait Refinement: Send + Sync {
    /// The method's config name.
    fn name(&self) -> &'static str;

    /// Changes the advantages in place.
    fn refine(
        &self,
        inputs: &Inputs<'_>,
        advantages: &mut TurnAdvantages,
        explanation: &mut Explanation,
    ) -> Result<(), CreditError>;

    /// Changes token-level advantages in place, for a refinement that can.
    fn refine_tokens(&self, inputs: &Inputs<'_>, tokens: &mut gae::TokenTable) -> Result<(), CreditError> {
        let _ = (inputs, tokens);
        Err(CreditError::Setting {
            method: self.name(),
            reason: "it works on advantages of whole turns, and `ppo` gives one per token; use it on a \
                     group-relative estimator, or `aem` on ppo"
                .into(),
        })
    }
}
