//! Registry of estimators and refinements: which `kind`s a configuration may name.
//!
//! A method of this crate is one file (settings, presets, equation) and one line in this one.
//! Another crate adds its own at run time:
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use turnwise_core::{Batch, PerTurn};
//! use turnwise_credit::{CreditConfig, CreditError, Explanation, Inputs, Pipeline, Refinement, Registry};
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
//!         _: &Inputs<'_>,
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
use crate::rloo::RlooConfig;
use crate::rtmc::RtmcConfig;
use crate::salt::SaltConfig;
use crate::turn_credit::TurnCreditConfig;
use crate::turn_ppo::TurnPpoConfig;
use crate::{CreditConfig, CreditError, Estimator, Refinement, selection};

/// Settings of a method of this crate, with what belongs to its name.
pub(crate) trait MethodSettings: Clone {
    /// Name of the method, the value of `kind`.
    const KIND: &'static str;

    /// The presets that are this method's.
    const PRESETS: &'static [Preset];

    /// The method.
    type Method;

    /// These settings with the switches that reproduce verl-agent's numbers, where that framework has the method.
    fn of_verl_agent(&self) -> Option<Self> {
        None
    }

    /// The method with these settings.
    ///
    /// # Errors
    /// A switch that cannot work.
    fn build(self) -> Result<Self::Method, CreditError>;
}

/// Refuses settings outside of the ranges that their type declares.
pub(crate) fn in_range<S: Serialize + schemars::JsonSchema + 'static>(
    method: &'static str,
    settings: &S,
) -> Result<(), CreditError> {
    turnwise_settings::check(settings)
        .map_err(|error| CreditError::Setting { method, reason: error.to_string() })
}

/// An enum of settings by `kind`, open for kinds of other crates.
macro_rules! builtin {
    ($(#[$meta:meta])* $config:ident builds $product:ident {
        $($(#[$doc:meta])* $variant:ident($settings:ty),)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
        #[serde(tag = "kind", rename_all = "kebab-case")]
        pub enum $config {
            $($(#[$doc])* $variant($settings),)*
            /// A method of another crate, known to a [`Registry`].
            #[serde(untagged)]
            #[schemars(skip)]
            Other(MethodTable),
        }

        impl $config {
            /// The names of this crate's methods.
            pub const KINDS: &'static [&'static str] = &[$(<$settings as MethodSettings>::KIND),*];

            const PRESETS: &'static [&'static [Preset]] = &[$(<$settings as MethodSettings>::PRESETS),*];

            /// Name of the method, the value of `kind`.
            pub fn kind(&self) -> &str {
                match self {
                    $(Self::$variant(_) => <$settings as MethodSettings>::KIND,)*
                    Self::Other(table) => &table.kind,
                }
            }

            /// The same method with the switches that reproduce verl-agent's numbers, where that framework has it.
            pub fn verl_agent(&self) -> Option<Self> {
                match self {
                    $(Self::$variant(settings) => settings.of_verl_agent().map(Self::$variant),)*
                    Self::Other(_) => None,
                }
            }

            /// The method with its settings.
            fn build(&self, other: &BTreeMap<&'static str, Factory<dyn $product>>) -> Result<Box<dyn $product>, CreditError> {
                match self {
                    $(Self::$variant(settings) => {
                        let method = settings.clone().build()?;
                        in_range(<$settings as MethodSettings>::KIND, settings)?;
                        Ok(Box::new(method))
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
    /// Estimator of the first advantage of every turn: `{ kind = "grpo", ... }`.
    EstimatorConfig builds Estimator {
        /// Group-relative, standardised.
        Grpo(GrpoConfig),
        /// Group-relative, leave one out.
        Rloo(RlooConfig),
        /// Group-relative at the episode level and in each anchor state.
        Gigpo(GigpoConfig),
        /// In clusters that share ever longer histories.
        Hgpo(HgpoConfig),
        /// By the returns of the group's rollouts through the same state.
        Rtmc(RtmcConfig),
        /// Token-level, with a critic.
        Ppo(PpoConfig),
        /// Turn-level, with a critic.
        TurnPpo(TurnPpoConfig),
    }
}

builtin! {
    /// Refinement of advantages: `{ kind = "aem", ... }`.
    RefinementConfig builds Refinement {
        /// Turns that walk the same edge share their advantages.
        Salt(SaltConfig),
        /// Modulated by relative response entropy.
        Aem(AemConfig),
        /// Scaled by confidence, with a bonus for clear next states.
        Empg(EmpgConfig),
        /// Blended with per-turn credits.
        Has(HasConfig),
        /// Shifted by progress that is given back to the turns before.
        TurnCredit(TurnCreditConfig),
    }
}

impl EstimatorConfig {
    /// The estimator's search for anchor states, where it has one.
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

/// Reads a table into typed settings: the table with every default spelled out, and the method.
type Factory<T> = Arc<dyn Fn(&MethodTable) -> Result<(MethodTable, Box<T>), CreditError> + Send + Sync>;

/// The factory of a table's kind.
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

/// The factory of a method of another crate.
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

/// Estimators and refinements by the name that a configuration gives them, and their presets.
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
    /// The methods and presets of this crate.
    pub fn builtin() -> Self {
        let own =
            EstimatorConfig::PRESETS.iter().chain(RefinementConfig::PRESETS).chain([&selection::PRESETS]);
        let presets = own.flat_map(|presets| presets.iter().copied()).collect();
        Self { estimators: BTreeMap::new(), refinements: BTreeMap::new(), presets }
    }

    /// The registry with one more refinement. `build` gets the settings of `{ kind = "...", ... }` in their
    /// own type, which refuses unknown keys by `#[serde(deny_unknown_fields)]`. A name of this crate's
    /// methods stays theirs.
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

    /// The registry with one more estimator (see [`Registry::with_refinement`]).
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

    /// The registry with one more preset.
    pub fn with_preset(mut self, preset: Preset) -> Self {
        self.presets.push(preset);
        self
    }

    /// The presets of methods.
    pub fn presets(&self) -> &[Preset] {
        &self.presets
    }

    /// The names of estimators that a configuration may use besides those of this crate.
    pub fn estimators(&self) -> Vec<&'static str> {
        self.estimators.keys().copied().collect()
    }

    /// The names of refinements that a configuration may use besides those of this crate.
    pub fn refinements(&self) -> Vec<&'static str> {
        self.refinements.keys().copied().collect()
    }

    /// Writes every default of the settings of other crates' methods into the configuration.
    ///
    /// # Errors
    /// A method that is not known, or settings that it refuses.
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
