//! From a configuration to advantages: the estimator, then the refinements in order.

use std::collections::BTreeMap;

use turnwise_core::Batch;

use crate::config::{CreditConfig, EstimatorConfig};
use crate::grpo::Grpo;
use crate::rloo::Rloo;
use crate::{CreditError, Estimator, Inputs, Refinement, Stories, Story, TurnAdvantages};

/// An estimator and its refinements, ready to run on any number of batches.
pub struct Pipeline {
    estimator: Box<dyn Estimator>,
    refinements: Vec<Box<dyn Refinement>>,
}

/// Everything a run of the pipeline found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CreditReport {
    /// One advantage per turn.
    pub advantages: TurnAdvantages,
    /// What each stage did, `[group][trajectory][turn][stage]`; empty unless it was asked for.
    pub stories: Stories,
    /// Numbers about the whole batch by name, for the metrics.
    pub diagnostics: BTreeMap<String, f64>,
}

impl Pipeline {
    /// Builds the pipeline.
    ///
    /// # Errors
    /// A setting that cannot work, with the reason.
    pub fn from_config(config: &CreditConfig) -> Result<Self, CreditError> {
        let estimator: Box<dyn Estimator> = match &config.estimator {
            EstimatorConfig::Grpo(config) => Box::new(Grpo::new(config.clone())?),
            EstimatorConfig::Rloo(config) => Box::new(Rloo::new(config.clone())?),
        };
        Ok(Self::new(estimator, Vec::new()))
    }

    /// A pipeline of one's own parts.
    pub fn new(estimator: Box<dyn Estimator>, refinements: Vec<Box<dyn Refinement>>) -> Self {
        Self { estimator, refinements }
    }

    /// The advantages of every turn of the batch.
    ///
    /// # Errors
    /// A field that a method needs and a turn does not have, or a number that is not finite.
    pub fn run(&self, batch: &Batch) -> Result<TurnAdvantages, CreditError> {
        self.report(&Inputs::new(batch), false).map(|report| report.advantages)
    }

    /// Advantages with diagnostics and, where `explain` is set, the story of every turn.
    ///
    /// # Errors
    /// As [`Pipeline::run`].
    pub fn report(&self, inputs: &Inputs<'_>, explain: bool) -> Result<CreditReport, CreditError> {
        let mut story = Story::new(explain);
        let mut advantages = self.estimator.advantages(inputs, &mut story)?;
        story.close(self.estimator.name(), &advantages);
        for refinement in &self.refinements {
            refinement.refine(inputs, &mut advantages, &mut story)?;
            story.close(refinement.name(), &advantages);
        }
        let (stories, diagnostics) = story.finish();
        Ok(CreditReport { advantages, stories, diagnostics })
    }
}
