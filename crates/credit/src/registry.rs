//! Registry of estimators and refinements, which a config selects by `kind`. Other crates add
//! methods at run time:
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use turnwise_core::{Batch, PerTurn};
//! use turnwise_credit::{CreditConfig, CreditError, Explanation, CreditInputs, Pipeline, Refinement, Registry};
//!
//! #[derive(Clone, Debug, Default, Serialize, Deserialize)]
//! #[serde(default, deny_unknown_fields)]
//! struct HalveConfig {}
//!
//! struct Halve;
//!
//! impl Refinement for Halve {
//!     fn name(&self) -> &'static str {
//!         "halve"
//!     }
//!
//!     fn refine(
//!         &self,
//!         _: &CreditInputs<'_>,
//!         advantages: &mut PerTurn<f64>,
//!         _: &mut Explanation,
//!     ) -> Result<(), CreditError> {
//!         advantages.values_mut().for_each(|advantage| *advantage *= 0.5);
//!         Ok(())
//!     }
//! }
//!
//! let registry = Registry::builtin().with_refinement("halve", |_: HalveConfig| Ok(Halve));
//! let config: CreditConfig = serde_json::from_str(r#"{"refinements": [{"kind": "halve"}]}"#)?;
//! let pipeline = Pipeline::with_registry(&config, &registry)?;
//! assert!(pipeline.run(&Batch::default())?.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use turnwise_core::{MethodTable, Preset};

use crate::aem::AemConfig;
use crate::anchor::AnchorConfig;
use crate::empg::EmpgConfig;
use crate::gae::PpoConfig;
use crate::gigpo::GigpoConfig;
use crate::grpo::GrpoConfig;
use crate::has::HasConfig;
use crate::hgpo::HgpoConfig;
use crate::igpo::IgpoConfig;
use crate::monte_carlo::MonteCarloConfig;
use crate::privileged_gap::PrivilegedGapConfig;
use crate::rloo::RlooConfig;
use crate::rtmc::RtmcConfig;
use crate::salt::SaltConfig;
use crate::turn_credit::TurnCreditConfig;
use crate::turn_ppo::TurnPpoConfig;
use crate::{CreditConfig, CreditError, Estimator, Refinement, selection};

pub(crate) trait MethodSettings: Clone {
    const KIND: &'static str;

    const PRESETS: &'static [Preset];

    type Method;

    fn of_verl_agent(&self) -> Option<Self> {
        None
    }

    fn build(self) -> Result<Self::Method, CreditError>;
}

pub(crate) fn in_range<S: Serialize + schemars::JsonSchema + 'static>(
    method: &'static str,
    settings: &S,
) -> Result<(), CreditError> {
    turnwise_settings::check(settings)
        .map_err(|error| CreditError::Setting { method, reason: error.to_string() })
}

/// Defines a settings enum with one variant per `kind`; other crates can add further kinds.
macro_rules! builtin {
    ($(#[$meta:meta])* $config:ident builds $product:ident {
        $($(#[$doc:meta])* $variant:ident($settings:ty),)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
        #[serde(tag = "kind", rename_all = "kebab-case")]
        pub enum $config {
            $($(#[$doc])* $variant($settings),)*
            /// A method that another crate added, looked up in the [`Registry`].
            #[serde(untagged)]
            #[schemars(skip)]
            Other(MethodTable),
        }

        impl $config {
            /// Names of the built-in methods.
            pub const KINDS: &'static [&'static str] = &[$(<$settings as MethodSettings>::KIND),*];

            const PRESETS: &'static [&'static [Preset]] = &[$(<$settings as MethodSettings>::PRESETS),*];

            /// Returns the value of `kind`.
            pub fn kind(&self) -> &str {
                match self {
                    $(Self::$variant(_) => <$settings as MethodSettings>::KIND,)*
                    Self::Other(table) => &table.kind,
                }
            }

            /// Returns settings that reproduce verl-agent's numbers; `None` if verl-agent lacks the
            /// method.
            pub fn verl_agent(&self) -> Option<Self> {
                match self {
                    $(Self::$variant(settings) => settings.of_verl_agent().map(Self::$variant),)*
                    Self::Other(_) => None,
                }
            }

            fn build(&self, other: &BTreeMap<&'static str, Factory<dyn $product>>) -> Result<Box<dyn $product>, CreditError> {
                match self {
                    $(Self::$variant(settings) => {
                        Ok(Box::new(settings.clone().build()?))
                    })*
                    Self::Other(table) => Ok((factory(other, table, Self::KINDS)?)(table)?.1),
                }
            }
        }

        impl<'de> Deserialize<'de> for $config {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let table = MethodTable::deserialize(deserializer)?;
                $(if table.kind == <$settings as MethodSettings>::KIND {
                    return table.read().map(Self::$variant).map_err(serde::de::Error::custom);
                })*
                Ok(Self::Other(table))
            }
        }
    };
}

builtin! {
    /// Estimator of the advantages: `{ kind = "grpo", ... }`.
    EstimatorConfig builds Estimator {
        /// Standardizes returns within the group.
        Grpo(GrpoConfig),
        /// Compares each return with the mean of the group's other returns (leave-one-out).
        Rloo(RlooConfig),
        /// Compares returns within the group and within anchor states.
        Gigpo(GigpoConfig),
        /// Compares returns among turns that share increasingly long histories.
        Hgpo(HgpoConfig),
        /// Compares returns of the group's rollouts by state and action.
        Rtmc(RtmcConfig),
        /// Estimates state values from fresh continuations.
        MonteCarlo(MonteCarloConfig),
        /// Token-level GAE with a critic.
        Ppo(PpoConfig),
        /// Turn-level GAE with a critic.
        TurnPpo(TurnPpoConfig),
    }
}

builtin! {
    /// Refinement of the advantages: `{ kind = "aem", ... }`.
    RefinementConfig builds Refinement {
        /// Averages advantages over turns on the same edge of the trajectory graph.
        Salt(SaltConfig),
        /// Scales advantages by relative response entropy.
        Aem(AemConfig),
        /// Scales advantages by confidence, with a bonus for a confident next turn.
        Empg(EmpgConfig),
        /// Blends trajectory advantages with per-turn credits.
        Has(HasConfig),
        /// Shifts advantages by progress, credited to the turns that caused it.
        TurnCredit(TurnCreditConfig),
        /// Replaces advantages by gains in the reference answer's probability.
        Igpo(IgpoConfig),
        /// Scales advantages by how much hindsight raises the response's probability.
        PrivilegedGap(PrivilegedGapConfig),
    }
}

impl EstimatorConfig {
    /// Returns the estimator's anchor-state settings; `None` if it has none.
    pub fn anchor(&self) -> Option<&AnchorConfig> {
        match self {
            Self::Gigpo(config) => Some(&config.anchor),
            Self::Rtmc(config) => Some(&config.anchor),
            _ => None,
        }
    }
}

impl Default for EstimatorConfig {
    fn default() -> Self {
        Self::Grpo(GrpoConfig::default())
    }
}

/// Parses a settings table; returns the method, and the table with all defaults filled in.
type Factory<T> = Arc<dyn Fn(&MethodTable) -> Result<(MethodTable, Box<T>), CreditError> + Send + Sync>;

fn factory<'a, T: ?Sized>(
    known: &'a BTreeMap<&'static str, Factory<T>>,
    table: &MethodTable,
    own: &[&str],
) -> Result<&'a Factory<T>, CreditError> {
    known.get(table.kind.as_str()).ok_or_else(|| {
        let known = own.iter().chain(known.keys()).map(|kind| format!("`{kind}`")).collect::<Vec<_>>();
        let reason = format!("unknown kind `{}`, expected one of {}", table.kind, known.join(", "));
        CreditError::Setting { method: "credit", reason }
    })
}

fn read<C, M, T>(
    method: &'static str,
    build: impl Fn(C) -> Result<M, CreditError> + Send + Sync + 'static,
    boxed: fn(M) -> Box<T>,
) -> Factory<T>
where
    C: Serialize + DeserializeOwned,
    M: 'static,
    T: ?Sized + 'static,
{
    Arc::new(move |table| {
        let fail = |error: serde_json::Error| CreditError::Setting { method, reason: error.to_string() };
        let settings: C = table.read().map_err(fail)?;
        let spelled_out = MethodTable::new(method, &settings).map_err(fail)?;
        Ok((spelled_out, boxed(build(settings)?)))
    })
}

/// The methods, by config name, and the presets.
#[derive(Clone)]
pub struct Registry {
    estimators: BTreeMap<&'static str, Factory<dyn Estimator>>,
    refinements: BTreeMap<&'static str, Factory<dyn Refinement>>,
    presets: Vec<Preset>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::builtin()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (estimators, refinements) = (self.estimators.keys(), self.refinements.keys());
        to.debug_struct("Registry")
            .field("estimators", &estimators.collect::<Vec<_>>())
            .field("refinements", &refinements.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl Registry {
    /// Creates a registry with the built-in methods and presets.
    pub fn builtin() -> Self {
        let own =
            EstimatorConfig::PRESETS.iter().chain(RefinementConfig::PRESETS).chain([&selection::PRESETS]);
        let presets = own.flat_map(|presets| presets.iter().copied()).collect();
        Self { estimators: BTreeMap::new(), refinements: BTreeMap::new(), presets }
    }

    /// Adds a refinement that is built from its parsed settings table. To reject unknown keys, put
    /// `#[serde(deny_unknown_fields)]` on the settings. Built-in methods cannot be replaced.
    pub fn with_refinement<C, R>(
        mut self,
        kind: &'static str,
        build: impl Fn(C) -> Result<R, CreditError> + Send + Sync + 'static,
    ) -> Self
    where
        C: Serialize + DeserializeOwned,
        R: Refinement + 'static,
    {
        self.refinements.insert(kind, read(kind, build, |refinement| Box::new(refinement)));
        self
    }

    /// Adds an estimator, like [`Registry::with_refinement`].
    pub fn with_estimator<C, E>(
        mut self,
        kind: &'static str,
        build: impl Fn(C) -> Result<E, CreditError> + Send + Sync + 'static,
    ) -> Self
    where
        C: Serialize + DeserializeOwned,
        E: Estimator + 'static,
    {
        self.estimators.insert(kind, read(kind, build, |estimator| Box::new(estimator)));
        self
    }

    /// Adds a refinement whose settings are known only at run time. `build` should reject unknown
    /// keys; it returns the method, and the method's settings table with all defaults filled in.
    pub fn with_refinement_table(
        mut self,
        kind: &'static str,
        build: impl Fn(&MethodTable) -> Result<(MethodTable, Box<dyn Refinement>), CreditError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.refinements.insert(kind, Arc::new(build));
        self
    }

    /// Adds an estimator, like [`Registry::with_refinement_table`].
    pub fn with_estimator_table(
        mut self,
        kind: &'static str,
        build: impl Fn(&MethodTable) -> Result<(MethodTable, Box<dyn Estimator>), CreditError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.estimators.insert(kind, Arc::new(build));
        self
    }

    /// Adds a preset.
    pub fn with_preset(mut self, preset: Preset) -> Self {
        self.presets.push(preset);
        self
    }

    /// Returns the presets.
    pub fn presets(&self) -> &[Preset] {
        &self.presets
    }

    /// Returns the names of other crates' estimators.
    pub fn estimators(&self) -> Vec<&'static str> {
        self.estimators.keys().copied().collect()
    }

    /// Returns the names of other crates' refinements.
    pub fn refinements(&self) -> Vec<&'static str> {
        self.refinements.keys().copied().collect()
    }

    /// Fills in all defaults of other crates' methods.
    ///
    /// # Errors
    /// Fails on an unknown method or rejected settings.
    pub fn spell_out(&self, config: &mut CreditConfig) -> Result<(), CreditError> {
        if let EstimatorConfig::Other(table) = &mut config.estimator {
            *table = (factory(&self.estimators, table, EstimatorConfig::KINDS)?)(table)?.0;
        }
        for refinement in &mut config.refinements {
            if let RefinementConfig::Other(table) = refinement {
                *table = (factory(&self.refinements, table, RefinementConfig::KINDS)?)(table)?.0;
            }
        }
        Ok(())
    }

    pub(crate) fn estimator(&self, config: &EstimatorConfig) -> Result<Box<dyn Estimator>, CreditError> {
        config.build(&self.estimators)
    }

    pub(crate) fn refinement(&self, config: &RefinementConfig) -> Result<Box<dyn Refinement>, CreditError> {
        config.build(&self.refinements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_written_as_it_is_read() {
        for kind in EstimatorConfig::KINDS {
            let read: EstimatorConfig = serde_json::from_str(&format!(r#"{{"kind":"{kind}"}}"#)).unwrap();
            assert!(!matches!(read, EstimatorConfig::Other(_)), "{kind}");
            let written = serde_json::to_value(&read).unwrap();
            assert_eq!((written["kind"].as_str(), read.kind()), (Some(*kind), *kind));
            assert_eq!(serde_json::from_value::<EstimatorConfig>(written).unwrap(), read);
        }
        for kind in RefinementConfig::KINDS {
            let read: RefinementConfig = serde_json::from_str(&format!(r#"{{"kind":"{kind}"}}"#)).unwrap();
            let written = serde_json::to_value(&read).unwrap();
            assert_eq!((written["kind"].as_str(), read.kind()), (Some(*kind), *kind));
        }
    }

    #[test]
    fn wrong_kinds_and_keys_are_named() {
        let wrong = serde_json::from_str::<RefinementConfig>(r#"{"kind":"aem","lamda":1}"#);
        let error = wrong.unwrap_err().to_string();
        assert!(error.contains("unknown field `lamda`, expected one of `lambda`"), "{error}");
        let unknown: CreditConfig = serde_json::from_str(r#"{"refinements":[{"kind":"ame"}]}"#).unwrap();
        let error = crate::Pipeline::from_config(&unknown).map(drop).unwrap_err().to_string();
        assert!(error.contains("unknown kind `ame`, expected one of `salt`, `aem`"), "{error}");
    }
}
