//! Credit assignment: estimators compute one advantage per turn, and refinements change it.
//!
//! The crate uses no tensors and does no I/O; statistics are computed in f64.
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

/// Maps texts to vectors; similar texts point in similar directions.
pub trait Embedder: Send + Sync {
    /// Returns the text's vector; all vectors have the same dimension.
    fn embed(&self, text: &str) -> Vec<f32>;
}

const WHOLE_TURNS: &str = "it works on advantages of whole turns, and `ppo` and `turn-ppo` give one per token; use a \
                           group-relative estimator, or `aem`";

/// Computes one advantage per turn.
pub trait Estimator: Send + Sync {
    /// Returns the method's config name.
    fn name(&self) -> &'static str;

    /// Returns the required model inputs.
    fn required_inputs(&self) -> RequiredInputs {
        RequiredInputs::default()
    }

    /// Returns the required turn fields, apart from rewards.
    fn fields(&self) -> Vec<TurnField> {
        Vec::new()
    }

    /// Returns what the policy must score for [`CreditInputs::scores`].
    fn score_requests(&self, batch: &Batch) -> Vec<ScoreRequest> {
        let _ = batch;
        Vec::new()
    }

    /// Returns true if a group of one trajectory carries no signal.
    fn compares_groups(&self) -> bool {
        true
    }

    /// Returns true if advantages per response token are also computed.
    fn works_on_tokens(&self) -> bool {
        false
    }

    /// Computes each turn's advantage.
    ///
    /// # Errors
    /// Returns [`CreditError::MissingField`] or [`CreditError::NotFinite`].
    fn advantages(
        &self,
        inputs: &CreditInputs<'_>,
        explanation: &mut Explanation,
    ) -> Result<PerTurn<f64>, CreditError>;

    /// Computes token advantages and value targets, if supported.
    ///
    /// # Errors
    /// Fails like [`Estimator::advantages`].
    fn token_advantages(&self, inputs: &CreditInputs<'_>) -> Result<Option<TokenAdvantages>, CreditError> {
        let _ = inputs;
        Ok(None)
    }
}

/// Modifies an estimator's advantages.
pub trait Refinement: Send + Sync {
    /// Returns the method's config name.
    fn name(&self) -> &'static str;

    /// Returns the required model inputs.
    fn required_inputs(&self) -> RequiredInputs {
        RequiredInputs::default()
    }

    /// Returns the required turn fields.
    fn fields(&self) -> Vec<TurnField> {
        Vec::new()
    }

    /// Returns what the policy must score for [`CreditInputs::scores`].
    fn score_requests(&self, batch: &Batch) -> Vec<ScoreRequest> {
        let _ = batch;
        Vec::new()
    }

    /// Returns true if [`Refinement::refine_tokens`] is implemented.
    fn works_on_tokens(&self) -> bool {
        false
    }

    /// Modifies the advantages.
    ///
    /// # Errors
    /// Fails like [`Estimator::advantages`], or if a required embedder or decomposer is missing.
    fn refine(
        &self,
        inputs: &CreditInputs<'_>,
        advantages: &mut PerTurn<f64>,
        explanation: &mut Explanation,
    ) -> Result<(), CreditError>;

    /// Modifies token advantages. Called instead of [`Refinement::refine`] if the estimator
    /// computes token advantages.
    ///
    /// # Errors
    /// Fails like [`Refinement::refine`]. The default implementation always fails.
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
