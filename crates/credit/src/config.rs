//! Credit settings: an estimator and a chain of refinements.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::outlier::OutlierConfig;
use crate::registry::{EstimatorConfig, RefinementConfig};

/// Settings of credit assignment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CreditConfig {
    /// Computes the advantages.
    pub estimator: EstimatorConfig,
    /// Refinements in the order they are applied.
    pub refinements: Vec<RefinementConfig>,
    /// Folder of a text encoder for matching by embedding: a sentence-transformers model or a BERT
    /// from `transformers`. If empty, embeddings are hashed character n-grams.
    #[serde(skip_serializing_if = "is_empty")]
    pub encoder: PathBuf,
    /// Detects turns with unusual entropy for STAPO's selective term. If absent, detection is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outliers: Option<OutlierConfig>,
}

fn is_empty(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

impl CreditConfig {
    /// Returns settings that reproduce verl-agent's numbers; `None` if verl-agent lacks the
    /// estimator.
    pub fn verl_agent(self) -> Option<Self> {
        Some(Self { estimator: self.estimator.verl_agent()?, ..self })
    }
}
