//! Credit as a configuration: one estimator and a chain of refinements.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::outlier::OutlierConfig;
use crate::registry::{EstimatorConfig, RefinementConfig};

/// The whole of credit assignment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CreditConfig {
    /// Makes the advantages.
    pub estimator: EstimatorConfig,
    /// Change them, in this order.
    pub refinements: Vec<RefinementConfig>,
    /// Model folder (sentence-transformers, or a BERT of `transformers`) that gives the vectors of observations where states are
    /// matched by embedding; empty for hashed character n-grams, which need no model.
    #[serde(skip_serializing_if = "is_empty")]
    pub encoder: PathBuf,
    /// Locates turns of unusual entropy for STAPO's selective term; absent: nothing is located.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outliers: Option<OutlierConfig>,
}

fn is_empty(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

impl CreditConfig {
    /// The same credit with the switches that reproduce verl-agent's numbers; `None` for an estimator that
    /// this framework does not have.
    pub fn verl_agent(self) -> Option<Self> {
        Some(Self { estimator: self.estimator.verl_agent()?, ..self })
    }
}
