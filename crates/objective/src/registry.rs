//! Registry of loss terms: the `kind`s of `objective.terms`.
//!
//! Other crates register terms with [`Registry::with_term`]:
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use turnwise_core::{Objective, ObjectiveError, TokenGradients, TokenStatistics};
//! use turnwise_objective::{Loss, LossTerm, Minibatch, ObjectiveConfig, Registry, TermObjective};
//!
//! /// `coef * mean over all tokens of lp^2`, which pulls every log-probability to 0.
//! #[derive(Clone, Debug, Serialize, Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct Squared {
//!     coef: f64,
//! }
//!
//! struct OverBatch {
//!     weight: f64,
//! }
//!
//! impl LossTerm for Squared {
//!     fn kind(&self) -> &'static str {
//!         "squared"
//!     }
//!
//!     // It has a gradient where the advantage is 0, too, so that no trajectory may be left out.
//!     fn acts_without_advantage(&self) -> bool {
//!         true
//!     }
//!
//!     fn for_minibatch(&self, minibatch: &Minibatch<'_>) -> Result<TermObjective, ObjectiveError> {
//!         let sequences = &minibatch.policy.batch().sequences;
//!         let tokens: usize = sequences.iter().map(|sequence| sequence.response_tokens()).sum();
//!         Ok(Box::new(OverBatch { weight: self.coef / tokens as f64 }))
//!     }
//! }
//!
//! impl Objective for OverBatch {
//!     fn evaluate(&self, _: usize, tokens: TokenStatistics<'_>) -> Result<TokenGradients, ObjectiveError> {
//!         let square = |logprob: &f32| self.weight * f64::from(*logprob).powi(2);
//!         Ok(TokenGradients {
//!             loss: tokens.logprobs.iter().map(square).sum(),
//!             d_logprobs: tokens.logprobs.iter().map(|lp| 2.0 * self.weight as f32 * lp).collect(),
//!             ..TokenGradients::default()
//!         })
//!     }
//! }
//!
//! let registry = Registry::builtin().with_term("squared", |term: Squared| Ok(term));
//! let config: ObjectiveConfig =
//!     serde_json::from_str(r#"{"terms": [{"kind": "squared", "coef": 0.1}]}"#)?;
//! assert_eq!(Loss::new(&config, &registry)?.terms().count(), 1);
//! let error = Loss::new(&config, &Registry::builtin()).unwrap_err().to_string();
//! assert!(error.contains("unknown term `squared`"), "{error}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use turnwise_core::{MethodTable, ObjectiveError, Preset};

use crate::{LossTerm, ObjectiveConfig, normalization, ppo, selective};

type Build = dyn Fn(&MethodTable) -> Result<(MethodTable, Arc<dyn LossTerm>), ObjectiveError> + Send + Sync;

/// Loss terms by config name, and presets of losses.
#[derive(Clone)]
pub struct Registry {
    terms: BTreeMap<&'static str, Arc<Build>>,
    presets: Vec<Preset>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::builtin()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Registry").field("terms", &self.kinds()).finish_non_exhaustive()
    }
}

impl Registry {
    /// Creates a registry with this crate's presets. This crate's terms are not registered, because
    /// they have their own keys in [`ObjectiveConfig`].
    pub fn builtin() -> Self {
        let presets = [ppo::PRESETS, selective::PRESETS, normalization::PRESETS].concat();
        Self { terms: BTreeMap::new(), presets }
    }

    /// Adds a term. `build` gets the parsed settings of `{ kind = "...", ... }`; their type should
    /// have `#[serde(deny_unknown_fields)]`.
    pub fn with_term<C, T>(
        mut self,
        kind: &'static str,
        build: impl Fn(C) -> Result<T, ObjectiveError> + Send + Sync + 'static,
    ) -> Self
    where
        C: Serialize + DeserializeOwned,
        T: LossTerm + 'static,
    {
        let build = move |table: &MethodTable| {
            let fail =
                |error: serde_json::Error| ObjectiveError::Setting(format!("terms, `{kind}`: {error}"));
            let settings: C = table.read().map_err(fail)?;
            let spelled_out = MethodTable::new(kind, &settings).map_err(fail)?;
            Ok((spelled_out, Arc::new(build(settings)?) as Arc<dyn LossTerm>))
        };
        self.terms.insert(kind, Arc::new(build));
        self
    }

    /// Adds a preset.
    pub fn with_preset(mut self, preset: Preset) -> Self {
        self.presets.push(preset);
        self
    }

    /// Returns the names for `objective.terms`.
    pub fn kinds(&self) -> Vec<&'static str> {
        self.terms.keys().copied().collect()
    }

    /// Returns the loss presets.
    pub fn presets(&self) -> &[Preset] {
        &self.presets
    }

    /// Writes the terms' defaults into the config.
    ///
    /// # Errors
    /// Fails on unknown terms and rejected settings.
    pub fn spell_out(&self, config: &mut ObjectiveConfig) -> Result<(), ObjectiveError> {
        for table in &mut config.terms {
            *table = self.built(table)?.0;
        }
        Ok(())
    }

    /// Returns the terms of a config: first the terms with their own keys, then the entries of
    /// `terms` in order.
    ///
    /// # Errors
    /// Fails on unknown terms and rejected settings.
    pub fn terms(&self, config: &ObjectiveConfig) -> Result<Vec<Arc<dyn LossTerm>>, ObjectiveError> {
        let mut terms: Vec<Arc<dyn LossTerm>> = Vec::new();
        if let Some(selective) = &config.selective {
            terms.push(Arc::new(selective.clone()));
        }
        if let Some(normalization) = &config.normalization {
            terms.push(Arc::new(normalization.clone()));
        }
        for table in &config.terms {
            terms.push(self.built(table)?.1);
        }
        Ok(terms)
    }

    fn built(&self, table: &MethodTable) -> Result<(MethodTable, Arc<dyn LossTerm>), ObjectiveError> {
        if let Some(build) = self.terms.get(table.kind.as_str()) {
            return build(table);
        }
        let known: Vec<String> = self.terms.keys().map(|kind| format!("`{kind}`")).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Err(ObjectiveError::Setting(format!(
            "terms: unknown term `{}`; this program has {known} (Registry::with_term adds one)",
            table.kind
        )))
    }
}
