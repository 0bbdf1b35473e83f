//! GRPO: `A_i = (R_i - mean) / (std + eps)` over the group, the same for every turn of a trajectory
//! (Shao et al. 2024, "DeepSeekMath", section 4.1).
//!
//! Differs from the paper: an invalid turn's own score is lowered by the penalty before it is
//! compared; zero variance gives exactly 0; `normalize = "mean"` leaves the division out (Dr. GRPO). The preset's loss is the mean over
//! tokens that is verl's default and not the paper's mean over responses of their means (`objective.aggregation =
//! "seq-mean-token-mean"`, which `aem-grpo` and the GRPO runs of `configs/paper/aem` set).

use serde::{Deserialize, Serialize};
use turnwise_core::{PerTurn, Preset};

use crate::registry::MethodSettings;
use crate::scores::{GroupScores, InvalidActionPenalty, PenaltyScope, Population};
use crate::statistics::{Moments, Normalize, Singleton};
use crate::{CreditError, Estimator, Explanation, Inputs};

const NAME: &str = "grpo";

/// The switches of GRPO.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GrpoConfig {
    /// Division by the standard deviation.
    pub normalize: Normalize,
    /// Subtracted from the count in the variance: 1 (sample) or 0 (population).
    #[schemars(range(max = 1))]
    pub ddof: u8,
    /// Added to the standard deviation.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub epsilon: f64,
    /// Population of the mean and the standard deviation.
    pub population: Population,
    /// Advantage in a population of one.
    pub singleton: Singleton,
    /// Score that an invalid turn loses.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub invalid_penalty: f64,
    /// Scores that the invalid turn's cost is subtracted from.
    pub penalty_scope: PenaltyScope,
}

impl Default for GrpoConfig {
    fn default() -> Self {
        Self {
            normalize: Normalize::MeanStd,
            ddof: 1,
            epsilon: 1e-6,
            population: Population::Trajectory,
            singleton: Singleton::Zero,
            invalid_penalty: 0.1,
            penalty_scope: PenaltyScope::Turn,
        }
    }
}

impl GrpoConfig {
    /// The same settings with the switches that reproduce verl-agent's numbers.
    #[must_use]
    pub fn verl_agent(&self) -> Self {
        Self { population: Population::Turn, singleton: Singleton::Raw, ..self.clone() }
    }

    /// The penalty.
    pub fn penalty(&self) -> InvalidActionPenalty {
        InvalidActionPenalty { cost: self.invalid_penalty, scope: self.penalty_scope }
    }

    pub(crate) fn check(&self, method: &'static str) -> Result<(), CreditError> {
        check_common(method, self.ddof, self.epsilon, self.invalid_penalty)
    }
}

/// Refuses common switches that cannot work.
pub(crate) fn check_common(
    method: &'static str,
    ddof: u8,
    epsilon: f64,
    cost: f64,
) -> Result<(), CreditError> {
    let refuse = |reason: String| Err(CreditError::Setting { method, reason });
    if ddof > 1 {
        return refuse(format!("ddof is {ddof}; it is 1 (sample) or 0 (population)"));
    }
    if !(epsilon >= 0.0 && epsilon.is_finite()) {
        return refuse(format!("epsilon is {epsilon}; it must be 0 or more"));
    }
    if !(cost >= 0.0 && cost.is_finite()) {
        return refuse(format!("invalid_penalty is {cost}; it is what an invalid turn costs, 0 or more"));
    }
    Ok(())
}

impl MethodSettings for GrpoConfig {
    const KIND: &'static str = NAME;
    const PRESETS: &'static [Preset] = &[Preset::new("grpo", "credit.estimator.kind = \"grpo\"")];
    type Method = Grpo;

    fn of_verl_agent(&self) -> Option<Self> {
        Some(self.verl_agent())
    }

    fn build(self) -> Result<Grpo, CreditError> {
        Grpo::new(self)
    }
}

/// The estimator.
#[derive(Clone, Debug)]
pub struct Grpo {
    config: GrpoConfig,
}

impl Grpo {
    /// GRPO with these switches.
    ///
    /// # Errors
    /// A switch that cannot work.
    pub fn new(config: GrpoConfig) -> Result<Self, CreditError> {
        config.check(NAME)?;
        Ok(Self { config })
    }
}

impl Estimator for Grpo {
    fn name(&self) -> &'static str {
        NAME
    }

    fn advantages(
        &self,
        inputs: &Inputs<'_>,
        explanation: &mut Explanation,
    ) -> Result<PerTurn<f64>, CreditError> {
        let config = &self.config;
        let mut advantages = PerTurn::default();
        for (index, group) in inputs.batch.groups.iter().enumerate() {
            let scores = GroupScores::new(NAME, index, group, config.penalty())?;
            let moments = Moments::of(&scores.population(config.population), config.ddof);
            let standardise =
                |&score: &f64| moments.standardise(score, config.normalize, config.epsilon, config.singleton);
            explanation.facts(index, &scores.turns, |_, _, &score| {
                vec![("score", score), ("mean", moments.mean), ("std", moments.std)]
            });
            advantages
                .push(scores.turns.iter().map(|turns| turns.iter().map(standardise).collect()).collect());
        }
        Ok(advantages)
    }
}
