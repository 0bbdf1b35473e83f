//! VinePPO's advantages: `A_t = r_t + gamma V(s_{t+1}) - V(s_t)`, with `V` estimated from fresh
//! continuations (Kazemnejad et al. 2024, arXiv 2410.01679, section 4).
//!
//! `V(s) = (R_1 + .. + R_K) / K`, with `R_k = sum_j gamma^j r_j` over continuations that the
//! rollout policy samples from each distinct state ([`turnwise_core::Turn::state_value`]); `V` is 0
//! after the last turn. The estimate is unbiased for any `K`; a larger `K` reduces its variance.
//!
//! With `per_turn = false`, all turns of a trajectory get `sum_t gamma^t A_t = R - V(s_0)`, a
//! control that has the baseline `V(s_0)` but no credit per turn.
//!
//! Differs from the paper:
//! * A step is a turn, not a line of reasoning; the turn's tokens share its advantage.
//! * Whitening counts each turn once; the paper's code whitens over tokens. `whiten = false` keeps
//!   the scale of the rewards.
//! * `invalid_penalty` is subtracted from an invalid turn's reward, not from state values.
//! * `per_turn` is ours.
//! * State values use the environment's rewards (times `env.reward_scale`); KL and length penalties
//!   count only in `r_t`.

use serde::{Deserialize, Serialize};
use turnwise_core::{PerTurn, Preset, Trajectory};

use crate::gae::Whitening;
use crate::registry::{MethodSettings, in_range};
use crate::scores::{GroupScores, InvalidActionPenalty, PenaltyScope};
use crate::statistics::ROUNDING;
use crate::{CreditError, CreditInputs, Estimator, Explanation, RequiredInputs, StateValues, TurnField};

const NAME: &str = "monte-carlo";

/// Settings of VinePPO.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MonteCarloConfig {
    /// Number of continuations per state.
    #[schemars(range(min = 1, max = 100_000))]
    pub continuations: usize,
    /// Discount per turn.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub gamma: f64,
    /// Whether each turn has its own advantage; otherwise all turns get the return minus the first
    /// state's value.
    pub per_turn: bool,
    /// Whether to whiten over the batch's turns.
    pub whiten: bool,
    /// Penalty of an invalid turn.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub invalid_penalty: f64,
}

impl Default for MonteCarloConfig {
    fn default() -> Self {
        Self { continuations: 9, gamma: 1.0, per_turn: true, whiten: true, invalid_penalty: 0.1 }
    }
}

impl MethodSettings for MonteCarloConfig {
    const KIND: &'static str = NAME;
    const PRESETS: &'static [Preset] = &[Preset::new("vineppo", "credit.estimator.kind = \"monte-carlo\"")];
    type Method = MonteCarlo;

    fn build(self) -> Result<MonteCarlo, CreditError> {
        MonteCarlo::new(self)
    }
}

/// The VinePPO estimator.
#[derive(Clone, Debug)]
pub struct MonteCarlo {
    config: MonteCarloConfig,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    reward: f64,
    value: f64,
    next_value: f64,
    delta: f64,
}

impl MonteCarlo {
    /// Creates the estimator.
    ///
    /// # Errors
    /// Fails on a setting out of range.
    pub fn new(config: MonteCarloConfig) -> Result<Self, CreditError> {
        in_range(NAME, &config)?;
        Ok(Self { config })
    }

    fn credit(&self, changes: &[Change]) -> Vec<f64> {
        if self.config.per_turn {
            return changes.iter().map(|change| change.delta).collect();
        }
        let discounted = |rest: f64, change: &Change| change.delta + self.config.gamma * rest;
        let total = changes.iter().rev().fold(0.0, discounted);
        vec![total; changes.len()]
    }

    fn changes(
        &self,
        data: &Trajectory,
        group: usize,
        trajectory: usize,
    ) -> Result<Vec<Change>, CreditError> {
        let MonteCarloConfig { gamma, invalid_penalty, .. } = self.config;
        let (method, field) = (NAME, "state_value");
        let penalty = InvalidActionPenalty { cost: invalid_penalty, scope: PenaltyScope::Return };
        let mut next_value = 0.0_f64;
        let mut changes = Vec::with_capacity(data.turns.len());
        for (turn, of_turn) in data.turns.iter().enumerate().rev() {
            let Some(value) = of_turn.state_value else {
                return Err(CreditError::MissingField { method, field, group, trajectory, turn });
            };
            if !value.is_finite() {
                return Err(CreditError::NotFinite { method, field, value, group, trajectory, turn });
            }
            let reward = of_turn.credited_reward() - penalty.on_reward(of_turn.valid);
            let size = reward.abs().max(value.abs()).max(next_value.abs());
            let delta = reward + gamma * next_value - value;
            // Whitening must not amplify rounding errors of equal values.
            let delta = if delta.abs() <= ROUNDING * size { 0.0 } else { delta };
            changes.push(Change { reward, value, next_value, delta });
            next_value = value;
        }
        changes.reverse();
        Ok(changes)
    }
}

impl Estimator for MonteCarlo {
    fn name(&self) -> &'static str {
        NAME
    }

    fn required_inputs(&self) -> RequiredInputs {
        let MonteCarloConfig { continuations, gamma, .. } = self.config;
        RequiredInputs {
            state_values: Some(StateValues { continuations, gamma }),
            ..RequiredInputs::default()
        }
    }

    fn fields(&self) -> Vec<TurnField> {
        vec![TurnField::StateValue]
    }

    fn compares_groups(&self) -> bool {
        false
    }

    fn advantages(
        &self,
        inputs: &CreditInputs<'_>,
        explanation: &mut Explanation,
    ) -> Result<PerTurn<f64>, CreditError> {
        let penalty = InvalidActionPenalty { cost: self.config.invalid_penalty, scope: PenaltyScope::Return };
        let mut advantages = PerTurn::default();
        let (mut first_values, mut trajectories) = (0.0, 0.0);
        for (index, group) in inputs.batch.groups.iter().enumerate() {
            GroupScores::new(NAME, index, group, penalty)?;
            let changes: Vec<Vec<Change>> = group
                .trajectories
                .iter()
                .enumerate()
                .map(|(member, trajectory)| self.changes(trajectory, index, member))
                .collect::<Result<_, _>>()?;
            for first in changes.iter().filter_map(|row| row.first()) {
                first_values += first.value;
                trajectories += 1.0;
            }
            explanation.facts(index, &changes, |_, _, change| {
                vec![
                    ("reward", change.reward),
                    ("value", change.value),
                    ("next_value", change.next_value),
                    ("delta", change.delta),
                ]
            });
            advantages.push(changes.iter().map(|row| self.credit(row)).collect());
        }
        if self.config.whiten {
            let all: Vec<f64> = advantages.values().copied().collect();
            Whitening::of(&all).apply(&mut advantages);
        }
        if trajectories > 0.0 {
            explanation.diagnostic("monte_carlo/first_value", first_values / trajectories);
        }
        Ok(advantages)
    }
}
