//! Credit assignment: estimators give one advantage per turn, refinements change them.
//!
//! Numbers in, numbers out: no tensors, no I/O. All statistics are computed in f64.
//!
//! ```
//! use turnwise_core::Batch;
//! use turnwise_credit::{CreditConfig, Pipeline};
//!
//! let pipeline = Pipeline::from_config(&CreditConfig::default())?;
//! assert!(pipeline.run(&Batch::default())?.is_empty());
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
mod needs;
mod pipeline;
mod presets;
mod registry;

pub use config::CreditConfig;
pub use error::CreditError;
pub use explanation::{Explanation, Explanations, attach_explanations};
pub use needs::{Inputs, Needs, Provider, ScoreRequest, Supplies, TurnField};
pub use pipeline::{CreditReport, Pipeline};
pub use presets::PRESETS;
pub use registry::{EstimatorConfig, RefinementConfig, Registry};
pub use turnwise_core::{Facts, StageRecord};

use gae::TokenAdvantages;
use turnwise_core::{Batch, PerToken, PerTurn};

/// Turns a text into a vector whose direction is its meaning.
pub trait Embedder: Send + Sync {
    /// The vector; all vectors of one embedder have the same length.
    fn embed(&self, text: &str) -> Vec<f32>;
}

/// Why a refinement of whole turns is refused where there are advantages of tokens.
const WHOLE_TURNS: &str = "it works on advantages of whole turns, and `ppo` gives one per token; use a \
                           group-relative estimator, or `aem`";

/// A batch in, one advantage per turn out.
pub trait Estimator: Send + Sync {
    /// The method's config name.
    fn name(&self) -> &'static str;

    /// The inputs that only models can give.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// The fields of every turn that are read besides rewards.
    fn fields(&self) -> Vec<TurnField> {
        Vec::new()
    }

    /// The texts to score with the policy, where [`Needs::scores`] is set; the answers are
    /// [`Inputs::scores`].
    fn score_requests(&self, batch: &Batch) -> Vec<ScoreRequest> {
        let _ = batch;
        Vec::new()
    }

    /// Whether the trajectories of a group are compared, so that a group of one teaches nothing.
    fn compares_groups(&self) -> bool {
        true
    }

    /// Whether there is an advantage for every response token besides those of turns.
    fn works_on_tokens(&self) -> bool {
        false
    }

    /// The advantages of every turn of the batch.
    fn advantages(
        &self,
        inputs: &Inputs<'_>,
        explanation: &mut Explanation,
    ) -> Result<PerTurn<f64>, CreditError>;

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

    /// The inputs that only models can give.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// The fields of every turn that are read.
    fn fields(&self) -> Vec<TurnField> {
        Vec::new()
    }

    /// The texts to score with the policy, where [`Needs::scores`] is set; the answers are
    /// [`Inputs::scores`].
    fn score_requests(&self, batch: &Batch) -> Vec<ScoreRequest> {
        let _ = batch;
        Vec::new()
    }

    /// Whether [`Refinement::refine_tokens`] has a meaning: the others compare or blend whole turns.
    fn works_on_tokens(&self) -> bool {
        false
    }

    /// Changes the advantages in place.
    fn refine(
        &self,
        inputs: &Inputs<'_>,
        advantages: &mut PerTurn<f64>,
        explanation: &mut Explanation,
    ) -> Result<(), CreditError>;

    /// Changes token-level advantages in place, for a refinement that can.
    fn refine_tokens(&self, inputs: &Inputs<'_>, tokens: &mut PerToken<f64>) -> Result<(), CreditError> {
        let _ = (inputs, tokens);
        Err(CreditError::Setting { method: self.name(), reason: WHOLE_TURNS.into() })
    }
}
