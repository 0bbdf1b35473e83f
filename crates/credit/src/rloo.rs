//! RLOO: `A_i = R_i - mean of the others = N / (N - 1) (R_i - mean)`, the same for every turn
//! (Ahmadian et al. 2024, "Back to Basics", section 3.3).
//!
//! Differs from the paper: an invalid turn's own score is lowered by the penalty. With
//! `population = "trajectory"` the others are trajectories and the penalty comes off afterwards;
//! with `population = "turn"` every turn of the group is compared with all other turns.

use serde::{Deserialize, Serialize};
use turnwise_core::{PerTurn, Preset};

use crate::grpo::check_common;
use crate::registry::MethodSettings;
use crate::scores::{GroupScores, InvalidActionPenalty, PenaltyScope, Population};
use crate::statistics::{Moments, Singleton};
use crate::{CreditError, Estimator, Explanation, Inputs};

const NAME: &str = "rloo";

/// The switches of RLOO.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RlooConfig {
    /// Population that "the others" are taken from.
    pub population: Population,
    /// Advantage in a population of one.
    pub singleton: Singleton,
    /// Score that an invalid turn loses.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub invalid_penalty: f64,
    /// Scores that the invalid turn's cost is subtracted from.
    pub penalty_scope: PenaltyScope,
}

impl Default for RlooConfig {
    fn default() -> Self {
        Self {
            population: Population::Trajectory,
            singleton: Singleton::Zero,
            invalid_penalty: 0.1,
            penalty_scope: PenaltyScope::Turn,
        }
    }
}

impl RlooConfig {
    /// The same settings with the switches that reproduce verl-agent's numbers.
    #[must_use]
    pub fn verl_agent(&self) -> Self {
        Self { population: Population::Turn, singleton: Singleton::Raw, ..self.clone() }
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

/// The estimator.
#[derive(Clone, Debug)]
pub struct Rloo {
    config: RlooConfig,
}

impl Rloo {
    /// RLOO with these switches.
    ///
    /// # Errors
    /// A switch that cannot work.
    pub fn new(config: RlooConfig) -> Result<Self, CreditError> {
        check_common(NAME, 0, 0.0, config.invalid_penalty)?;
        Ok(Self { config })
    }
}

impl Estimator for Rloo {
    fn name(&self) -> &'static str {
        NAME
    }

    fn advantages(
        &self,
        inputs: &Inputs<'_>,
        explanation: &mut Explanation,
    ) -> Result<PerTurn<f64>, CreditError> {
        let RlooConfig { population, singleton, invalid_penalty, penalty_scope } = self.config;
        let penalty = InvalidActionPenalty { cost: invalid_penalty, scope: penalty_scope };
        let mut advantages = PerTurn::default();
        for (index, group) in inputs.batch.groups.iter().enumerate() {
            let scores = GroupScores::new(NAME, index, group, penalty)?;
            let moments = Moments::of(&scores.population(population), 0);
            // What leaving oneself out multiplies the distance from the mean with.
            let n = moments.count as f64;
            let leave_out = |score: f64| match (moments.count, singleton) {
                (0, _) | (1, Singleton::Zero) => 0.0,
                (1, Singleton::Raw) => score,
                _ => n / (n - 1.0) * (score - moments.mean),
            };
            let advantage = |outcome: f64, score: f64| match (population, moments.count, singleton) {
                (Population::Trajectory, 1, Singleton::Zero) => 0.0,
                // Not a member once penalised: the member's advantage, then the penalty.
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
