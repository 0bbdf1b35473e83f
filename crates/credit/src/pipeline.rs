//! From a configuration to advantages: the estimator, then the refinements in order.

use std::collections::BTreeMap;

use turnwise_core::Batch;

use crate::aem::Aem;
use crate::config::{CreditConfig, EstimatorConfig, RefinementConfig};
use crate::empg::Empg;
use crate::gae::{Ppo, TokenAdvantages};
use crate::gigpo::Gigpo;
use crate::grpo::Grpo;
use crate::has::Has;
use crate::hgpo::Hgpo;
use crate::outlier::{OutlierConfig, Outliers, locate};
use crate::rloo::Rloo;
use crate::salt::Salt;
use crate::{CreditError, Estimator, Explanation, Explanations, Inputs, Refinement, TurnAdvantages};

/// An estimator and its refinements, ready to run on any number of batches.
pub struct Pipeline {
    estimator: Box<dyn Estimator>,
    refinements: Vec<Box<dyn Refinement>>,
    outliers: Option<OutlierConfig>,
}

/// Everything a run of the pipeline found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CreditReport {
    /// One advantage per turn.
    pub advantages: TurnAdvantages,
    /// One advantage and value target per response token, where the estimator works on tokens.
    pub tokens: Option<TokenAdvantages>,
    /// Where the turns of unusual entropy are, where the config asks for it.
    pub outliers: Option<Outliers>,
    /// What each stage did, `[group][trajectory][turn][stage]`; empty unless it was asked for.
    pub explanations: Explanations,
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
            EstimatorConfig::Gigpo(config) => Box::new(Gigpo::new(config.clone())?),
            EstimatorConfig::Hgpo(config) => Box::new(Hgpo::new(config.clone())?),
            EstimatorConfig::Ppo(config) => Box::new(Ppo::new(config.clone())?),
        };
        let refinements = config
            .refinements
            .iter()
            .map(|refinement| -> Result<Box<dyn Refinement>, CreditError> {
                Ok(match refinement {
                    RefinementConfig::Salt(config) => Box::new(Salt::new(config.clone())?),
                    RefinementConfig::Aem(config) => Box::new(Aem::new(config.clone())?),
                    RefinementConfig::Empg(config) => Box::new(Empg::new(config.clone())?),
                    RefinementConfig::Has(config) => Box::new(Has::new(config.clone())?),
                })
            })
            .collect::<Result<_, _>>()?;
        // AEM multiplies, so it has a meaning for tokens; the others compare or blend whole turns.
        let token_level = matches!(config.estimator, EstimatorConfig::Ppo(_));
        if token_level
            && let Some(other) =
                config.refinements.iter().find(|kind| !matches!(kind, RefinementConfig::Aem(_)))
        {
            let method = match other {
                RefinementConfig::Salt(_) => "salt",
                RefinementConfig::Aem(_) => "aem",
                RefinementConfig::Empg(_) => "empg",
                RefinementConfig::Has(_) => "has",
            };
            let reason = "it works on advantages of whole turns, and `ppo` gives one per token; use a \
                          group-relative estimator, or `aem`";
            return Err(CreditError::Setting { method, reason: reason.into() });
        }
        Ok(Self { outliers: config.outliers.clone(), ..Self::new(estimator, refinements) })
    }

    /// A pipeline of one's own parts.
    pub fn new(estimator: Box<dyn Estimator>, refinements: Vec<Box<dyn Refinement>>) -> Self {
        Self { estimator, refinements, outliers: None }
    }

    /// The advantages of every turn of the batch.
    ///
    /// # Errors
    /// A field that a method needs and a turn does not have, or a number that is not finite.
    pub fn run(&self, batch: &Batch) -> Result<TurnAdvantages, CreditError> {
        self.report(&Inputs::new(batch), false).map(|report| report.advantages)
    }

    /// Advantages with diagnostics and, where `explain` is set, the explanation of every turn.
    ///
    /// # Errors
    /// As [`Pipeline::run`].
    pub fn report(&self, inputs: &Inputs<'_>, explain: bool) -> Result<CreditReport, CreditError> {
        let mut explanation = Explanation::new(explain);
        let mut advantages = self.estimator.advantages(inputs, &mut explanation)?;
        explanation.close(self.estimator.name(), &advantages);
        let mut tokens = self.estimator.token_advantages(inputs)?;
        for refinement in &self.refinements {
            refinement.refine(inputs, &mut advantages, &mut explanation)?;
            explanation.close(refinement.name(), &advantages);
            if let Some(tokens) = &mut tokens {
                refinement.refine_tokens(inputs, &mut tokens.advantages)?;
            }
        }
        let outliers = self.outliers.as_ref().map(|config| locate(inputs.batch, config)).transpose()?;
        if let Some(outliers) = &outliers {
            outliers.record(inputs.batch, &mut explanation);
            explanation.close("outliers", &advantages);
        }
        self.check(&advantages)?;
        let (explanations, diagnostics) = explanation.finish();
        Ok(CreditReport { advantages, tokens, outliers, explanations, diagnostics })
    }

    /// Refuses advantages that overflowed.
    fn check(&self, advantages: &TurnAdvantages) -> Result<(), CreditError> {
        for (group, rows) in advantages.0.iter().enumerate() {
            for (trajectory, row) in rows.iter().enumerate() {
                if let Some((turn, &value)) = row.iter().enumerate().find(|(_, value)| !value.is_finite()) {
                    let (method, field) = (self.estimator.name(), "advantage");
                    return Err(CreditError::NotFinite { method, field, value, group, trajectory, turn });
                }
            }
        }
        Ok(())
    }
}
