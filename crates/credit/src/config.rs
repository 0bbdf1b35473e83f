//! Credit as a configuration: one estimator and a chain of refinements.

use serde::{Deserialize, Serialize};

use crate::aem::AemConfig;
use crate::empg::EmpgConfig;
use crate::gae::PpoConfig;
use crate::gigpo::GigpoConfig;
use crate::grpo::GrpoConfig;
use crate::has::HasConfig;
use crate::hgpo::HgpoConfig;
use crate::outlier::OutlierConfig;
use crate::rloo::RlooConfig;
use crate::salt::SaltConfig;

/// How the first advantage of every turn is made: `{ kind = "grpo", ... }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum EstimatorConfig {
    /// Group-relative, standardised.
    Grpo(GrpoConfig),
    /// Group-relative, leave one out.
    Rloo(RlooConfig),
    /// Group-relative at the episode level and in each anchor state.
    Gigpo(GigpoConfig),
    /// In clusters that share ever longer histories.
    Hgpo(HgpoConfig),
    /// Token-level, with a critic.
    Ppo(PpoConfig),
}

impl Default for EstimatorConfig {
    fn default() -> Self {
        Self::Grpo(GrpoConfig::default())
    }
}

/// How advantages are changed afterwards: `{ kind = "aem", ... }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum RefinementConfig {
    /// Turns that walk the same edge share their advantages.
    Salt(SaltConfig),
    /// Modulated by relative response entropy.
    Aem(AemConfig),
    /// Scaled by confidence, with a bonus for clear next states.
    Empg(EmpgConfig),
    /// Blended with per-turn credits.
    Has(HasConfig),
}

/// The whole of credit assignment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CreditConfig {
    /// Makes the advantages.
    pub estimator: EstimatorConfig,
    /// Change them, in this order.
    pub refinements: Vec<RefinementConfig>,
    /// Locates turns of unusual entropy for STAPO's selective term; absent: nothing is located.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outliers: Option<OutlierConfig>,
}
