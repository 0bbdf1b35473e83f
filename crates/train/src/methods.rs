//! Methods that a config may name: those of this project and those of a user's own crate.

use serde::Serialize;
use serde::de::DeserializeOwned;
use turnwise_core::{ObjectiveError, Preset};
use turnwise_credit::{CreditError, Estimator, Pipeline, Refinement};
use turnwise_objective::{Loss, LossTerm};

use crate::TrainError;
use crate::config::Config;

/// Estimators, refinements and loss terms by name, with their presets.
///
/// A config carries the methods it was read with ([`Config::methods`]), so that a run and everything that looks at
/// its config know them. `examples/custom_refinement.rs` and `examples/custom_objective.rs` add one each.
#[derive(Clone, Debug, Default)]
pub struct Methods {
    /// Estimators and refinements.
    pub credit: turnwise_credit::Registry,
    /// Loss terms.
    pub objective: turnwise_objective::Registry,
}

/// Two are equal if they know the same names.
impl PartialEq for Methods {
    fn eq(&self, other: &Self) -> bool {
        self.credit.kinds() == other.credit.kinds() && self.objective.kinds() == other.objective.kinds()
    }
}

impl Methods {
    /// The methods of this project.
    pub fn builtin() -> Self {
        Self::default()
    }

    /// One more refinement for `credit.refinements` (see [`turnwise_credit::Registry::with_refinement`]).
    #[must_use]
    pub fn with_refinement<C, R>(
        mut self,
        kind: &'static str,
        build: impl Fn(C) -> Result<R, CreditError> + Send + Sync + 'static,
    ) -> Self
    where
        C: Serialize + DeserializeOwned,
        R: Refinement + 'static,
    {
        self.credit = self.credit.with_refinement(kind, build);
        self
    }

    /// One more estimator for `credit.estimator` (see [`turnwise_credit::Registry::with_estimator`]).
    #[must_use]
    pub fn with_estimator<C, E>(
        mut self,
        kind: &'static str,
        build: impl Fn(C) -> Result<E, CreditError> + Send + Sync + 'static,
    ) -> Self
    where
        C: Serialize + DeserializeOwned,
        E: Estimator + 'static,
    {
        self.credit = self.credit.with_estimator(kind, build);
        self
    }

    /// One more term for `objective.terms` (see [`turnwise_objective::Registry::with_term`]).
    #[must_use]
    pub fn with_term<C, T>(
        mut self,
        kind: &'static str,
        build: impl Fn(C) -> Result<T, ObjectiveError> + Send + Sync + 'static,
    ) -> Self
    where
        C: Serialize + DeserializeOwned,
        T: LossTerm + 'static,
    {
        self.objective = self.objective.with_term(kind, build);
        self
    }

    /// The presets of methods.
    pub fn presets(&self) -> impl Iterator<Item = &Preset> {
        self.credit.presets().iter().chain(self.objective.presets())
    }
}

impl Config {
    /// The same config with these methods, every default of their settings spelled out.
    ///
    /// # Errors
    /// A method that is not known, or settings that it refuses.
    pub fn with_methods(mut self, methods: Methods) -> Result<Self, TrainError> {
        methods.credit.spell_out(&mut self.credit)?;
        methods.objective.spell_out(&mut self.objective)?;
        self.methods = methods;
        Ok(self)
    }

    /// Credit as a pipeline.
    ///
    /// # Errors
    /// A method that is not known, or a setting that cannot work.
    pub fn pipeline(&self) -> Result<Pipeline, TrainError> {
        Ok(Pipeline::with_registry(&self.credit, &self.methods.credit)?)
    }

    /// The loss with its terms.
    ///
    /// # Errors
    /// A term that is not known, or a setting that cannot work.
    pub fn loss(&self) -> Result<Loss, TrainError> {
        Ok(Loss::new(&self.objective, &self.methods.objective)?)
    }
}
