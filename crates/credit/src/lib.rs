//! Credit assignment: estimators give one advantage per turn, refinements change them.
//!
//! Numbers in, numbers out: no tensors, no I/O. All statistics are computed in f64.
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
//! | [`grpo`], [`rloo`], [`gae`], [`turn_ppo`], [`gigpo`], [`hgpo`], [`rtmc`] | estimators |
//! | [`salt`], [`aem`], [`empg`], [`has`], [`turn_credit`] | refinements |
//! | [`outlier`] | turns of unusual entropy, for loss terms that act on them |
//! | [`selection`], [`compact`], [`overlong`] | which groups and trajectories are trained on, and the shaping of long responses |
//! | [`anchor`], [`similarity`], [`embedding`] | which turns are in the same state |
//! | [`scores`], [`statistics`], [`entropies`] | what several methods count with |
//! | `registry` | the methods by name, open for those of other crates |
//! | `needs`, `pipeline`, `explanation` | inputs, the run of a configuration, why every number is what it is |
//! | `meanings` | the same in words |

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
pub mod outlier;
pub mod overlong;
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
mod meanings;
mod needs;
mod pipeline;
mod registry;

pub use config::CreditConfig;
pub use error::CreditError;
pub use explanation::{Explanation, Explanations, attach_explanations};
pub use meanings::{fact_meaning, stage_rule};
pub use needs::{Inputs, Needs, Provider, ScoreRequest, Supplies};
pub use pipeline::{CreditReport, Pipeline};
pub use registry::{EstimatorConfig, RefinementConfig, Registry};
pub use turnwise_core::TurnField;
pub use turnwise_core::{Facts, StageRecord};

use gae::TokenAdvantages;
use turnwise_core::{Batch, PerToken, PerTurn};

/// Turns a text into a vector whose direction is its meaning.
pub trait Embedder: Send + Sync {
    /// The vector; all vectors of one embedder have the same length.
    fn embed(&self, text: &str) -> Vec<f32>;
}

/// Reason why a refinement of whole turns is refused where there are advantages of tokens.
const WHOLE_TURNS: &str = "it works on advantages of whole turns, and `ppo` and `turn-ppo` give one per token; use a \
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

    /// True if the trajectories of a group are compared, so that a group of one teaches nothing.
    fn compares_groups(&self) -> bool {
        true
    }

    /// True if there is an advantage for every response token besides those of turns.
    fn works_on_tokens(&self) -> bool {
        false
    }

    /// The advantages of every turn of the batch.
    ///
    /// # Errors
    /// [`CreditError::MissingField`] or [`CreditError::NotFinite`], with the turn: something that the method reads is
    /// not there or not finite.
    fn advantages(
        &self,
        inputs: &Inputs<'_>,
        explanation: &mut Explanation,
    ) -> Result<PerTurn<f64>, CreditError>;

    /// Advantages and value targets of every response token, for an estimator that has them.
    ///
    /// # Errors
    /// Those of [`Estimator::advantages`]; without advantages of tokens there are none.
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

    /// True if [`Refinement::refine_tokens`] has a meaning: the others compare or blend whole turns.
    fn works_on_tokens(&self) -> bool {
        false
    }

    /// Changes the advantages in place.
    ///
    /// # Errors
    /// [`CreditError::MissingField`] or [`CreditError::NotFinite`], with the turn: something that the method reads is
    /// not there or not finite. [`CreditError::Setting`] where the settings want an embedder or a decomposer and
    /// [`Inputs`] has none.
    fn refine(
        &self,
        inputs: &Inputs<'_>,
        advantages: &mut PerTurn<f64>,
        explanation: &mut Explanation,
    ) -> Result<(), CreditError>;

    /// Changes token-level advantages in place, for a refinement that can; called in place of [`Refinement::refine`] behind an estimator that has
    /// them.
    ///
    /// # Errors
    /// [`CreditError::Setting`] where the method works on whole turns, as it does unless it says otherwise; else
    /// those of [`Refinement::refine`].
    fn refine_tokens(
        &self,
        inputs: &Inputs<'_>,
        tokens: &mut PerToken<f64>,
        explanation: &mut Explanation,
    ) -> Result<(), CreditError> {
        let _ = (inputs, tokens, explanation);
        Err(CreditError::Setting { method: self.name(), reason: WHOLE_TURNS.into() })
    }
}
