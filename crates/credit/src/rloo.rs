//! RLOO: `A_i = R_i - mean of the others = N / (N - 1) (R_i - mean)`, for all turns of a trajectory
//! (Ahmadian et al. 2024, "Back to Basics", section 3.3).
//!
//! Differs from the paper: an invalid-action penalty is subtracted from an invalid turn's score.
//! With `population = "trajectory"`, returns are compared without the penalty, which is subtracted
//! afterwards. With `population = "turn"`, each turn's penalized score is compared with the scores
//! of all other turns of the group.

use serde::{Deserialize, Serialize};
use turnwise_core::{PerTurn, Preset};

use crate::registry::{MethodSettings, in_range};
use crate::scores::{GroupScores, InvalidActionPenalty, PenaltyScope, Population};
use crate::statistics::{Moments, Singleton};
use crate::{CreditError, CreditInputs, Estimator, Explanation};

const NAME: &str = "rloo";

/// Settings of RLOO.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RlooConfig {
    /// Whether to compare trajectories or turns.
    pub population: Population,
    /// Advantage of a sample that is the only one in its population.
    pub single_sample_advantage: Singleton,
    /// Penalty of an invalid turn.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub invalid_penalty: f64,
    /// What the invalid-action penalty is subtracted from.
    pub invalid_penalty_target: PenaltyScope,
}

impl Default for RlooConfig {
    fn default() -> Self {
        Self {
            population: Population::Trajectory,
            single_sample_advantage: Singleton::Zero,
            invalid_penalty: 0.1,
            invalid_penalty_target: PenaltyScope::Turn,
        }
    }
}

impl RlooConfig {
    /// Returns settings that reproduce verl-agent's numbers.
    #[must_use]
    pub fn verl_agent(&self) -> Self {
        Self { population: Population::Turn, single_sample_advantage: Singleton::Raw, ..self.clone() }
    }
}

impl MethodSettings for RlooConfig {
    const KIND: &'static str = NAME;
    const PRESETS: &'static [Preset] = &[Preset::new("rloo", "credit.estimator.kind = \"rloo\"")];
    type Method = Rloo;

    fn of_verl_agent(&self) -> Option<Self> {
        Some(self.verl_agent())
    }

    fn build(self) -> Result<Rloo, CreditError> {
        Rloo::new(self)
    }
}

/// The RLOO estimator.
#[derive(Clone, Debug)]
pub struct Rloo {
    config: RlooConfig,
}

impl Rloo {
    /// Creates RLOO.
    ///
    /// # Errors
    /// Fails on invalid settings.
    pub fn new(config: RlooConfig) -> Result<Self, CreditError> {
        in_range(NAME, &config)?;
        Ok(Self { config })
    }
}

impl Estimator for Rloo {
    fn name(&self) -> &'static str {
        NAME
    }

    fn advantages(
        &self,
        inputs: &CreditInputs<'_>,
        explanation: &mut Explanation,
    ) -> Result<PerTurn<f64>, CreditError> {
        let RlooConfig { population, single_sample_advantage, invalid_penalty, invalid_penalty_target } =
            self.config;
        let penalty = InvalidActionPenalty { cost: invalid_penalty, scope: invalid_penalty_target };
        let mut advantages = PerTurn::default();
        for (index, group) in inputs.batch.groups.iter().enumerate() {
            let scores = GroupScores::new(NAME, index, group, penalty)?;
            let moments = Moments::of(&scores.population(population), 0);
            // Leaving one out of n scales the distance from the mean by n / (n - 1).
            let n = moments.count as f64;
            let leave_out = |score: f64| match (moments.count, single_sample_advantage) {
                (0, _) | (1, Singleton::Zero) => 0.0,
                (1, Singleton::Raw) => score,
                _ => n / (n - 1.0) * (score - moments.mean),
            };
            let advantage =
                |outcome: f64, score: f64| match (population, moments.count, single_sample_advantage) {
                    (Population::Trajectory, 1, Singleton::Zero) => 0.0,
                    // Penalized scores are not in the population.
                    (Population::Trajectory, ..) => leave_out(outcome) + (score - outcome),
                    (Population::Turn, ..) => leave_out(score),
                };
            explanation
                .facts(index, &scores.turns, |_, _, &score| vec![("score", score), ("mean", moments.mean)]);
            advantages.push(
                scores
                    .turns
                    .iter()
                    .zip(&scores.returns)
                    .map(|(turns, &outcome)| turns.iter().map(|&score| advantage(outcome, score)).collect())
                    .collect(),
            );
        }
        Ok(advantages)
    }
}
