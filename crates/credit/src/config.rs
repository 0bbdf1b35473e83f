//! Credit as a configuration: one estimator and a chain of refinements.

use serde::{Deserialize, Serialize};

use crate::grpo::GrpoConfig;
use crate::rloo::RlooConfig;

/// How the first advantage of every turn is made: `{ kind = "grpo", ... }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum EstimatorConfig {
    /// Group-relative, standardised.
    Grpo(GrpoConfig),
    /// Group-relative, leave one out.
    Rloo(RlooConfig),
}

impl Default for EstimatorConfig {
    fn default() -> Self {
        Self::Grpo(GrpoConfig::default())
    }
}

/// The whole of credit assignment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CreditConfig {
    /// Makes the advantages.
    pub estimator: EstimatorConfig,
}
