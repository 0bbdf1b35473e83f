//! The names that a config may use.

use turnwise_credit::Pipeline;
use turnwise_env::registry::Registry;
use turnwise_methods::Methods;
use turnwise_objective::Loss;

use super::Config;
use crate::TrainError;

/// Environments and methods by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Registries {
    /// Environments by `env.kind`, with their prompt templates.
    pub environments: Registry,
    /// Estimators, refinements, loss terms and presets.
    pub methods: Methods,
}

impl Default for Registries {
    fn default() -> Self {
        Self::builtin()
    }
}

impl Registries {
    /// Returns the built-in environments and methods.
    pub fn builtin() -> Self {
        Self { environments: Registry::builtin(), methods: Methods::builtin() }
    }

    /// Creates the config's credit pipeline.
    ///
    /// # Errors
    /// Fails on unknown methods and invalid settings.
    pub fn pipeline(&self, config: &Config) -> Result<Pipeline, TrainError> {
        Ok(Pipeline::with_registry(&config.credit, &self.methods.credit)?)
    }

    /// Creates the config's loss.
    ///
    /// # Errors
    /// Fails on unknown terms and invalid settings.
    pub fn loss(&self, config: &Config) -> Result<Loss, TrainError> {
        Ok(Loss::new(&config.objective, &self.methods.objective)?)
    }
}
