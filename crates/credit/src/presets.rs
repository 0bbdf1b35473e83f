//! The credit part of every named preset.

use crate::aem::AemConfig;
use crate::empg::EmpgConfig;
use crate::gae::PpoConfig;
use crate::gigpo::GigpoConfig;
use crate::grpo::GrpoConfig;
use crate::has::{DecomposerKind, HasConfig};
use crate::hgpo::HgpoConfig;
use crate::outlier::OutlierConfig;
use crate::rloo::RlooConfig;
use crate::salt::SaltConfig;
use crate::{CreditConfig, EstimatorConfig, RefinementConfig};

/// The names of all presets.
pub const PRESETS: [&str; 24] = [
    "grpo",
    "rloo",
    "ppo",
    "dapo",
    "gspo",
    "gigpo",
    "hgpo",
    "empg",
    "stapo",
    "stapo-dynamic",
    "aem-grpo",
    "aem-dapo",
    "aem-gspo",
    "aem-gigpo",
    "has-progressive",
    "has-judge",
    "has-turnrd",
    "has-turnrd-film",
    "so-ppo",
    "so-grpo",
    "salt-grpo",
    "salt-rloo",
    "salt-dapo",
    "salt-gspo",
];

impl CreditConfig {
    /// The credit part of a preset. DAPO and GSPO take GRPO's advantages: what is theirs is in the
    /// objective and in the choice of groups; so is what SORL and STAPO add.
    pub fn preset(name: &str) -> Option<Self> {
        let base = |name: &str| -> Option<EstimatorConfig> {
            Some(match name {
                "grpo" | "dapo" | "gspo" | "so-grpo" => EstimatorConfig::Grpo(GrpoConfig::default()),
                "rloo" => EstimatorConfig::Rloo(RlooConfig::default()),
                "ppo" | "so-ppo" => EstimatorConfig::Ppo(PpoConfig::default()),
                "gigpo" | "stapo" | "stapo-dynamic" => EstimatorConfig::Gigpo(GigpoConfig::default()),
                "hgpo" => EstimatorConfig::Hgpo(HgpoConfig::default()),
                _ => return None,
            })
        };
        if let Some(estimator) = base(name) {
            let outliers = name.starts_with("stapo").then(OutlierConfig::default);
            return Some(Self { estimator, refinements: Vec::new(), outliers });
        }
        if name == "empg" {
            let refinements = vec![RefinementConfig::Empg(EmpgConfig::default())];
            return Some(Self { estimator: base("grpo")?, refinements, outliers: None });
        }
        let (refinement, base_name) = name.split_once('-')?;
        let known = |names: &[&str]| names.contains(&base_name);
        Some(match refinement {
            "aem" if known(&["grpo", "dapo", "gspo", "gigpo"]) => Self {
                estimator: base(base_name)?,
                refinements: vec![RefinementConfig::Aem(AemConfig::default())],
                outliers: None,
            },
            "salt" if known(&["grpo", "rloo", "dapo", "gspo"]) => Self {
                estimator: base(base_name)?,
                refinements: vec![RefinementConfig::Salt(SaltConfig::default())],
                outliers: None,
            },
            "has" if known(&["progressive", "judge", "turnrd", "turnrd-film"]) => {
                let decomposer = match base_name {
                    "progressive" => DecomposerKind::Progressive,
                    _ => DecomposerKind::External,
                };
                Self {
                    // The paper standardises with the population's deviation.
                    estimator: EstimatorConfig::Grpo(GrpoConfig { ddof: 0, ..GrpoConfig::default() }),
                    refinements: vec![RefinementConfig::Has(HasConfig {
                        decomposer,
                        ..HasConfig::default()
                    })],
                    outliers: None,
                }
            }
            _ => return None,
        })
    }

    /// The same credit with the switches that reproduce verl-agent's numbers; `None` for an estimator that
    /// this framework does not have.
    pub fn verl_agent(self) -> Option<Self> {
        Some(Self { estimator: self.estimator.verl_agent()?, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pipeline;

    #[test]
    fn every_preset_builds_and_survives_being_written_down() {
        for name in PRESETS {
            let config = CreditConfig::preset(name).unwrap_or_else(|| panic!("{name}"));
            assert!(Pipeline::from_config(&config).is_ok(), "{name}");
            let text = serde_json::to_string(&config).unwrap();
            assert_eq!(serde_json::from_str::<CreditConfig>(&text).unwrap(), config, "{name}");
        }
        for name in ["", "aem", "aem-ppo", "salt-gigpo", "has-", "grpo-aem"] {
            assert_eq!(CreditConfig::preset(name), None, "{name}");
        }
        let peer = CreditConfig::preset("gigpo").unwrap().verl_agent().unwrap();
        assert_eq!(CreditConfig::preset("hgpo").unwrap().verl_agent(), None);
        assert_eq!(peer.estimator, EstimatorConfig::Gigpo(GigpoConfig::verl_agent()));
    }
}
