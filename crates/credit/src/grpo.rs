//! GRPO: `A_i = (R_i - mean) / (std + eps)` over the group, for all turns of a trajectory (Shao et
//! al. 2024, "DeepSeekMath", section 4.1).
//!
//! Differs from the paper: an invalid-action penalty is subtracted from an invalid turn's score. If
//! the variance is zero, the advantage is exactly 0. `normalize = "mean"` omits the division (Dr.
//! GRPO). The preset uses verl's token-mean loss; the paper averages over each response's tokens,
//! then over responses (`objective.loss_agg_mode = "seq-mean-token-mean"`, set by `aem-grpo` and
//! the GRPO runs of `configs/paper/aem`).

use serde::{Deserialize, Serialize};
use turnwise_core::{PerTurn, Preset};

use crate::registry::{MethodSettings, in_range};
use crate::scores::{GroupScores, InvalidActionPenalty, PenaltyScope, Population};
use crate::statistics::{Moments, Normalize, Singleton};
use crate::{CreditError, CreditInputs, Estimator, Explanation};

const NAME: &str = "grpo";

/// Settings of GRPO.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GrpoConfig {
    /// Whether to divide by the standard deviation.
    pub normalize: Normalize,
    /// Degrees of freedom of the standard deviation: 1 (sample) or 0 (population).
    #[schemars(range(max = 1))]
    pub ddof: u8,
    /// Constant added to the standard deviation before dividing by it.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub epsilon: f64,
    /// Samples over which the mean and standard deviation are computed.
    pub population: Population,
    /// Advantage of a sample that is the only one in its population.
    pub single_sample_advantage: Singleton,
    /// Penalty of an invalid turn.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub invalid_penalty: f64,
    /// What the invalid-action penalty is subtracted from.
    pub invalid_penalty_target: PenaltyScope,
}

impl Default for GrpoConfig {
    fn default() -> Self {
        Self {
            normalize: Normalize::MeanStd,
            ddof: 1,
            epsilon: 1e-6,
            population: Population::Trajectory,
            single_sample_advantage: Singleton::Zero,
            invalid_penalty: 0.1,
            invalid_penalty_target: PenaltyScope::Turn,
        }
    }
}

impl GrpoConfig {
    /// Returns settings that reproduce verl-agent's numbers.
    #[must_use]
    pub fn verl_agent(&self) -> Self {
        Self { population: Population::Turn, single_sample_advantage: Singleton::Raw, ..self.clone() }
    }

    /// Returns the invalid-action penalty.
    pub fn penalty(&self) -> InvalidActionPenalty {
        InvalidActionPenalty { cost: self.invalid_penalty, scope: self.invalid_penalty_target }
    }
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

/// The GRPO estimator.
#[derive(Clone, Debug)]
pub struct Grpo {
    config: GrpoConfig,
}

impl Grpo {
    /// Creates GRPO.
    ///
    /// # Errors
    /// Fails on invalid settings.
    pub fn new(config: GrpoConfig) -> Result<Self, CreditError> {
        in_range(NAME, &config)?;
        Ok(Self { config })
    }
}

impl Estimator for Grpo {
    fn name(&self) -> &'static str {
        NAME
    }

    fn advantages(
        &self,
        inputs: &CreditInputs<'_>,
        explanation: &mut Explanation,
    ) -> Result<PerTurn<f64>, CreditError> {
        let config = &self.config;
        let mut advantages = PerTurn::default();
        for (index, group) in inputs.batch.groups.iter().enumerate() {
            let scores = GroupScores::new(NAME, index, group, config.penalty())?;
            let moments = Moments::of(&scores.population(config.population), config.ddof);
            let standardise = |&score: &f64| {
                moments.standardise(score, config.normalize, config.epsilon, config.single_sample_advantage)
            };
            explanation.facts(index, &scores.turns, |_, _, &score| {
                vec![("score", score), ("mean", moments.mean), ("std", moments.std)]
            });
            advantages
                .push(scores.turns.iter().map(|turns| turns.iter().map(standardise).collect()).collect());
        }
        Ok(advantages)
    }
}
