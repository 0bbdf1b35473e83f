//! The credit pipeline.

use std::collections::BTreeMap;

use turnwise_core::{Batch, PerTurn, Table, Unit};

use crate::config::CreditConfig;
use crate::gae::{self, TokenAdvantages};
use crate::outlier::{self, OutlierConfig, Outliers, locate};
use crate::{
    CreditError, CreditInputs, Estimator, Explanation, Explanations, InputProvider, ModelInputs, Refinement,
    Registry, RequiredInputs, ScoreRequest, TurnField, WHOLE_TURNS,
};

/// An estimator followed by refinements.
pub struct Pipeline {
    estimator: Box<dyn Estimator>,
    refinements: Vec<Box<dyn Refinement>>,
    outliers: Option<OutlierConfig>,
}

/// Results of a pipeline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CreditReport {
    /// One advantage per turn.
    pub advantages: PerTurn<f64>,
    /// Advantage and value target per response token, if the estimator has them.
    pub tokens: Option<TokenAdvantages>,
    /// Turns with unusual entropy, if configured.
    pub outliers: Option<Outliers>,
    /// Records `[group][trajectory][turn][stage]`; empty unless requested.
    pub explanations: Explanations,
    /// The batch's diagnostics, logged as metrics.
    pub diagnostics: BTreeMap<String, f64>,
}

const OF_TOKENS: &str = "advantages of tokens";

fn fits<U: Unit>(table: &Table<f64, U>, what: &'static str, batch: &Batch) -> Result<(), CreditError> {
    table.check_shape(batch).map_err(|source| CreditError::Shape { what, source })
}

fn check_stage<U: Unit>(
    method: &'static str,
    table: &Table<f64, U>,
    what: &'static str,
    batch: &Batch,
) -> Result<(), CreditError> {
    fits(table, what, batch)?;
    match table.iter().find(|(_, value)| !value.is_finite()) {
        Some(((group, trajectory, turn), &value)) => {
            Err(CreditError::NotFinite { method, field: "advantage", value, group, trajectory, turn })
        }
        None => Ok(()),
    }
}

impl Pipeline {
    /// Creates a pipeline of built-in methods.
    ///
    /// # Errors
    /// Fails on an invalid setting.
    pub fn from_config(config: &CreditConfig) -> Result<Self, CreditError> {
        Self::with_registry(config, &Registry::builtin())
    }

    /// Creates a pipeline with the methods in `registry`.
    ///
    /// # Errors
    /// Fails on an unknown method or invalid setting.
    pub fn with_registry(config: &CreditConfig, registry: &Registry) -> Result<Self, CreditError> {
        let estimator = registry.estimator(&config.estimator)?;
        let refinements = config
            .refinements
            .iter()
            .map(|refinement| registry.refinement(refinement))
            .collect::<Result<_, _>>()?;
        let outliers = config.outliers.clone().map(|outliers| {
            let anchor = outliers.anchor.clone().or_else(|| config.estimator.anchor().cloned());
            OutlierConfig { anchor, ..outliers }
        });
        outliers.as_ref().map_or(Ok(()), OutlierConfig::check)?;
        let pipeline = Self { outliers, ..Self::new(estimator, refinements) };
        if pipeline.works_on_tokens()
            && let Some(other) = pipeline.refinements.iter().find(|refinement| !refinement.works_on_tokens())
        {
            return Err(CreditError::Setting { method: other.name(), reason: WHOLE_TURNS.into() });
        }
        Ok(pipeline)
    }

    /// Creates a pipeline from its stages.
    pub fn new(estimator: Box<dyn Estimator>, refinements: Vec<Box<dyn Refinement>>) -> Self {
        Self { estimator, refinements, outliers: None }
    }

    /// Returns the estimator's config name.
    pub fn estimator(&self) -> &'static str {
        self.estimator.name()
    }

    /// Returns the model inputs that the stages need.
    pub fn required_inputs(&self) -> RequiredInputs {
        self.refinements.iter().fold(self.estimator.required_inputs(), |needs, refinement| {
            needs.and(refinement.required_inputs())
        })
    }

    /// Returns the turn fields that the stages need, each with its stage's config name.
    pub fn fields(&self) -> Vec<(&'static str, TurnField)> {
        let refinements = self.refinements.iter().map(|stage| (stage.name(), stage.fields()));
        let outliers = self.outliers.iter().map(|config| (outlier::NAME, config.fields()));
        std::iter::once((self.estimator.name(), self.estimator.fields()))
            .chain(refinements)
            .chain(outliers)
            .flat_map(|(name, fields)| fields.into_iter().map(move |field| (name, field)))
            .collect()
    }

    /// Returns true if a group of one trajectory carries no signal.
    pub fn compares_groups(&self) -> bool {
        self.estimator.compares_groups()
    }

    /// Returns true if advantages per response token are also computed.
    pub fn works_on_tokens(&self) -> bool {
        self.estimator.works_on_tokens()
    }

    /// Returns true if outlier turns are detected ([`CreditReport::outliers`]).
    pub fn selects_turns(&self) -> bool {
        self.outliers.is_some()
    }

    /// Requests the stages' model inputs and checks their shapes.
    ///
    /// # Errors
    /// Returns errors of `provider`, and [`CreditError::Shape`] or [`CreditError::Scores`] if it
    /// supplies too few or too many values.
    pub fn supply<P: InputProvider>(&self, batch: &Batch, provider: &mut P) -> Result<ModelInputs, P::Error> {
        fn fits<T, U: Unit>(
            table: Table<T, U>,
            what: &'static str,
            batch: &Batch,
        ) -> Result<Table<T, U>, CreditError> {
            table.check_shape(batch).map_err(|source| CreditError::Shape { what, source })?;
            Ok(table)
        }
        let needs = self.required_inputs();
        let mut model_inputs = ModelInputs::default();
        if needs.values {
            model_inputs.values = Some(fits(provider.values(batch)?, "values", batch)?);
        }
        if needs.credits {
            model_inputs.credits = Some(fits(provider.credits(batch)?, "credits", batch)?);
        }
        if let Some(most) = needs.hidden_states {
            model_inputs.hidden_states =
                Some(fits(provider.hidden_states(batch, most)?, "hidden states", batch)?);
        }
        if needs.scores {
            let stages = self.refinements.iter().map(|stage| stage.score_requests(batch));
            let stages: Vec<Vec<ScoreRequest>> =
                std::iter::once(self.estimator.score_requests(batch)).chain(stages).collect();
            let counts: Vec<usize> = stages.iter().map(Vec::len).collect();
            let requests: Vec<ScoreRequest> = stages.into_iter().flatten().collect();
            let scores = provider.scores(batch, &requests)?;
            if scores.len() != requests.len() {
                let (found, expected) = (scores.len(), requests.len());
                return Err(CreditError::Scores { found, expected }.into());
            }
            let mut scores = scores.into_iter();
            model_inputs.scores =
                counts.into_iter().map(|count| scores.by_ref().take(count).collect()).collect();
        }
        Ok(model_inputs)
    }

    /// Computes each turn's advantage.
    ///
    /// # Errors
    /// Fails on a missing turn field, NaN or infinity.
    pub fn run(&self, batch: &Batch) -> Result<PerTurn<f64>, CreditError> {
        self.report(&CreditInputs::new(batch), false).map(|report| report.advantages)
    }

    /// Computes advantages and diagnostics and, with `explain`, explanations.
    ///
    /// # Errors
    /// Fails like [`Pipeline::run`].
    pub fn report(&self, inputs: &CreditInputs<'_>, explain: bool) -> Result<CreditReport, CreditError> {
        let mut explanation = Explanation::new(explain);
        let (batch, name) = (inputs.batch, self.estimator.name());
        let mut advantages = self.estimator.advantages(inputs, &mut explanation)?;
        check_stage(name, &advantages, "advantages", batch)?;
        explanation.close(name, &advantages);
        let mut tokens = self.estimator.token_advantages(inputs)?;
        if let Some(tokens) = &tokens {
            check_stage(name, &tokens.advantages, OF_TOKENS, batch)?;
            fits(&tokens.returns, "returns of tokens", batch)?;
        }
        for (index, refinement) in self.refinements.iter().enumerate() {
            let (inputs, name) = (&inputs.of_stage(index + 1), refinement.name());
            if let Some(tokens) = &mut tokens {
                refinement.refine_tokens(inputs, &mut tokens.advantages, &mut explanation)?;
                check_stage(name, &tokens.advantages, OF_TOKENS, batch)?;
                // Training uses the token advantages; turns show their means.
                advantages = gae::of_turns(batch, &tokens.advantages);
            } else {
                refinement.refine(inputs, &mut advantages, &mut explanation)?;
            }
            check_stage(name, &advantages, "advantages", batch)?;
            explanation.close(name, &advantages);
        }
        let outliers = self.outliers.as_ref().map(|config| locate(inputs.batch, config)).transpose()?;
        if let Some(outliers) = &outliers {
            outliers.record(inputs.batch, &mut explanation);
            explanation.close(outlier::NAME, &advantages);
        }
        let (explanations, diagnostics) = explanation.finish();
        Ok(CreditReport { advantages, tokens, outliers, explanations, diagnostics })
    }
}
