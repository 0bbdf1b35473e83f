//! Credit assignment: estimators compute one advantage per turn, and refinements change it.
//!
//! This crate uses no tensors and does no I/O. Statistics are computed in f64.
//!
//! ```
//! use turnwise_core::{Batch, Group, Trajectory};
//! use turnwise_credit::{CreditConfig, Pipeline};
//!
//! let line = |reward: f64| {
//!     let text = format!(
//!         r#"{{"schema_version": 1, "task": {{"id": "t", "kind": "k", "goal": "g"}}, "group": 0, "sample": 0,
//!             "turns": [{{"observation": "s0", "action": "a", "valid": true, "reward": 0}},
//!                       {{"observation": "s1", "action": "b", "valid": true, "reward": {reward}}}],
//!             "stop": {{"kind": "terminated"}}, "success": false}}"#
//!     );
//!     serde_json::from_str::<Trajectory>(&text)
//! };
//! let group = Group { trajectories: vec![line(1.0)?, line(0.0)?] };
//! let pipeline = Pipeline::from_config(&CreditConfig::default())?; // GRPO
//! let advantages = pipeline.run(&Batch { groups: vec![group] })?;
//! // (1 - 0.5) / (0.7071 + 1e-6), the same for both turns of the trajectory.
//! assert!((advantages[(0, 0, 0)] - 0.707106).abs() < 1e-6);
//! assert_eq!(advantages[(0, 1, 1)], -advantages[(0, 0, 1)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | subject |
//! |---|---|
//! | [`grpo`], [`rloo`], [`gae`], [`turn_ppo`], [`gigpo`], [`hgpo`], [`rtmc`], [`monte_carlo`] | estimators |
//! | [`salt`], [`aem`], [`empg`], [`has`], [`turn_credit`], [`igpo`], [`privileged_gap`] | refinements |
//! | [`outlier`] | detection of turns with unusual entropy, for loss terms that apply to them |
//! | [`selection`], [`compact`], [`overlong`] | filters for groups and trajectories, and a penalty for long responses |
//! | [`anchor`], [`similarity`], [`embedding`] | matching turns in the same state |
//! | [`scores`], [`statistics`], [`entropies`] | shared computations |
//! | `registry` | methods by name, including those registered by other crates |
//! | `inputs`, `pipeline`, `explanation` | model inputs, the configured pipeline, and explanations of its results |
//! | `meanings` | descriptions of explanations |

pub mod aem;
pub mod anchor;
pub mod compact;
pub mod embedding;
pub mod empg;
pub mod entropies;
pub mod gae;
pub mod gigpo;
pub mod grpo;
pub mod has;
pub mod hgpo;
pub mod igpo;
pub mod monte_carlo;
pub mod outlier;
pub mod overlong;
pub mod privileged_gap;
pub mod rloo;
pub mod rtmc;
pub mod salt;
pub mod scores;
pub mod selection;
pub mod similarity;
pub mod statistics;
pub mod turn_credit;
pub mod turn_ppo;

mod config;
mod error;
mod explanation;
mod hashing;
mod inputs;
mod meanings;
mod pipeline;
mod registry;

pub use config::CreditConfig;
pub use error::CreditError;
pub use explanation::{Explanation, Explanations, attach_explanations};
pub use inputs::{CreditInputs, InputProvider, ModelInputs, RequiredInputs, ScoreRequest, StateValues};
pub use meanings::{fact_meaning, stage_rule};
pub use pipeline::{CreditReport, Pipeline};
pub use registry::{EstimatorConfig, RefinementConfig, Registry};
pub use turnwise_core::TurnField;
pub use turnwise_core::{Facts, StageRecord};

use gae::TokenAdvantages;
use turnwise_core::{Batch, PerToken, PerTurn};

/// Maps a text to a vector, such that similar texts point in similar directions.
pub trait Embedder: Send + Sync {
    /// Returns the text's vector; all vectors have the same dimension.
    fn embed(&self, text: &str) -> Vec<f32>;
}

const WHOLE_TURNS: &str = "it works on advantages of whole turns, and `ppo` and `turn-ppo` give one per token; use a \
                           group-relative estimator, or `aem`";

/// Computes one advantage per turn from a batch.
pub trait Estimator: Send + Sync {
    /// Returns the method's config name.
    fn name(&self) -> &'static str;

    /// Returns which inputs from a model the estimator needs.
    fn required_inputs(&self) -> RequiredInputs {
        RequiredInputs::default()
    }

    /// Returns the turn fields that the estimator needs, apart from rewards.
    fn fields(&self) -> Vec<TurnField> {
        Vec::new()
    }

    /// Returns the texts or responses that the policy must score, if [`RequiredInputs::scores`] is
    /// set. They are returned by [`CreditInputs::scores`].
    fn score_requests(&self, batch: &Batch) -> Vec<ScoreRequest> {
        let _ = batch;
        Vec::new()
    }

    /// Returns true if trajectories are compared within their group, so that a group of one carries
    /// no signal.
    fn compares_groups(&self) -> bool {
        true
    }

    /// Returns true if the estimator also computes an advantage per response token.
    fn works_on_tokens(&self) -> bool {
        false
    }

    /// Computes the advantage of each turn of the batch.
    ///
    /// # Errors
    /// Returns [`CreditError::MissingField`] or [`CreditError::NotFinite`], which names the turn.
    fn advantages(
        &self,
        inputs: &CreditInputs<'_>,
        explanation: &mut Explanation,
    ) -> Result<PerTurn<f64>, CreditError>;

    /// Computes the advantage and value target of each response token, if supported.
    ///
    /// # Errors
    /// Fails like [`Estimator::advantages`].
    fn token_advantages(&self, inputs: &CreditInputs<'_>) -> Result<Option<TokenAdvantages>, CreditError> {
        let _ = inputs;
        Ok(None)
    }
}

/// Modifies the advantages computed by an estimator.
pub trait Refinement: Send + Sync {
    /// Returns the method's config name.
    fn name(&self) -> &'static str;

    /// Returns which inputs from a model the refinement needs.
    fn required_inputs(&self) -> RequiredInputs {
        RequiredInputs::default()
    }

    /// Returns the turn fields that the refinement needs.
    fn fields(&self) -> Vec<TurnField> {
        Vec::new()
    }

    /// Returns the texts or responses that the policy must score, if [`RequiredInputs::scores`] is
    /// set. They are returned by [`CreditInputs::scores`].
    fn score_requests(&self, batch: &Batch) -> Vec<ScoreRequest> {
        let _ = batch;
        Vec::new()
    }

    /// Returns true if [`Refinement::refine_tokens`] is implemented. Refinements that compare or
    /// blend whole turns do not support token-level advantages.
    fn works_on_tokens(&self) -> bool {
        false
    }

    /// Modifies the advantages in place.
    ///
    /// # Errors
    /// Returns [`CreditError::MissingField`] or [`CreditError::NotFinite`], which name the turn, or
    /// [`CreditError::Setting`] if [`CreditInputs`] lacks an embedder or decomposer.
    fn refine(
        &self,
        inputs: &CreditInputs<'_>,
        advantages: &mut PerTurn<f64>,
        explanation: &mut Explanation,
    ) -> Result<(), CreditError>;

    /// Modifies token-level advantages in place. Called instead of [`Refinement::refine`] if the
    /// estimator computes token-level advantages.
    ///
    /// # Errors
    /// Returns [`CreditError::Setting`] by default, because most methods do not support tokens.
    /// Otherwise fails like [`Refinement::refine`].
    fn refine_tokens(
        &self,
        inputs: &CreditInputs<'_>,
        tokens: &mut PerToken<f64>,
        explanation: &mut Explanation,
    ) -> Result<(), CreditError> {
        let _ = (inputs, tokens, explanation);
        Err(CreditError::Setting { method: self.name(), reason: WHOLE_TURNS.into() })
    }
}
