//! RTMC, rollout-tree Monte Carlo: `A(s, a) = Q(s, a) - V(s)`, estimated from the returns of the
//! group's rollouts (Wang et al. 2026, "RTMC: Step-Level Credit Assignment via Rollout Trees",
//! arXiv 2604.11037).
//!
//! Rollouts of one task share states and form a tree (or graph) whose branches are actions. With
//! `R_{i,t} = sum_{k>=t} gamma^(k-t) r_k`, `n(s)` rollouts that visit s, `n(s, a)` that take action
//! a there, and the group's mean return `m`:
//! * `V(s) = (sum of the returns from the first visits of s + k m) / (n(s) + k)`;
//! * `Q(s, a) = (sum of the returns from the first time that a is taken in s + k V(s)) / (n(s, a) + k)`.
//!
//! `k` is the setting `prior`. If only one rollout visits a state, the advantage there is
//! `k / (1 + k)^2 (R - m)`. States are matched by state key, actions by parsed text.
//!
//! Differs from the paper: we only had the abstract and summaries, which mention first-visit
//! estimates, `Q - V` and a smoothing prior; the form and strength of the prior are ours. The paper
//! matches states by signatures that compress the history, not by state key. An invalid-action
//! penalty is subtracted from an invalid turn's return. If `Q` and `V` are equal up to rounding,
//! the advantage is exactly 0.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use turnwise_core::{Group, PerTurn, Preset};

use crate::anchor::{AnchorConfig, Anchors};
use crate::registry::{MethodSettings, in_range};
use crate::scores::{GroupScores, InvalidActionPenalty, PenaltyScope};
use crate::statistics::ROUNDING;
use crate::{CreditError, CreditInputs, Estimator, Explanation, TurnField};

const NAME: &str = "rtmc";

/// Settings of RTMC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RtmcConfig {
    /// Discount of returns.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub gamma: f64,
    /// Weight of the prior, in rollouts. A state's prior is the group's mean return; an action's
    /// prior is the value of its state.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub prior: f64,
    /// Penalty of an invalid turn.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub invalid_penalty: f64,
    /// What the invalid-action penalty is subtracted from.
    pub invalid_penalty_target: PenaltyScope,
    /// How anchor states are matched.
    pub anchor: AnchorConfig,
}

impl Default for RtmcConfig {
    fn default() -> Self {
        Self {
            gamma: 1.0,
            prior: 1.0,
            invalid_penalty: 0.1,
            invalid_penalty_target: PenaltyScope::Turn,
            anchor: AnchorConfig::default(),
        }
    }
}

impl MethodSettings for RtmcConfig {
    const KIND: &'static str = NAME;
    const PRESETS: &'static [Preset] = &[Preset::new(NAME, "credit.estimator.kind = \"rtmc\"")];
    type Method = Rtmc;

    fn build(self) -> Result<Rtmc, CreditError> {
        Rtmc::new(self)
    }
}

/// The RTMC estimator.
#[derive(Clone, Debug)]
pub struct Rtmc {
    config: RtmcConfig,
}

#[derive(Clone, Copy, Debug, Default)]
struct Visits {
    sum: f64,
    count: usize,
    last: Option<usize>,
}

impl Visits {
    fn add(&mut self, rollout: usize, value: f64) {
        if self.last != Some(rollout) {
            *self = Self { sum: self.sum + value, count: self.count + 1, last: Some(rollout) };
        }
    }

    fn mean(&self, prior: f64, strength: f64) -> f64 {
        (self.sum + strength * prior) / (self.count as f64 + strength)
    }
}

#[derive(Clone, Copy, Debug)]
struct Estimate {
    value: f64,
    action_value: f64,
    visits: usize,
    action_visits: usize,
}

impl Estimate {
    /// Returns `Q - V`, or 0 if they are equal up to rounding.
    fn advantage(&self) -> f64 {
        let away = self.action_value - self.value;
        let size = self.action_value.abs().max(self.value.abs());
        if away.abs() <= ROUNDING * size { 0.0 } else { away }
    }
}

impl Rtmc {
    /// Creates RTMC.
    ///
    /// # Errors
    /// Fails on invalid settings.
    pub fn new(config: RtmcConfig) -> Result<Self, CreditError> {
        in_range(NAME, &config)?;
        Ok(Self { config })
    }

    fn estimates(&self, group: &Group, anchors: &Anchors, returns: &[Vec<f64>]) -> Vec<Vec<Estimate>> {
        let prior = self.config.prior;
        let firsts: Vec<f64> = returns.iter().filter_map(|row| row.first().copied()).collect();
        let mean = firsts.iter().sum::<f64>() / firsts.len().max(1) as f64;
        let mut states = vec![Visits::default(); anchors.count];
        let mut actions: HashMap<(usize, &str), Visits> = HashMap::new();
        for (rollout, trajectory) in group.trajectories.iter().enumerate() {
            for (turn, data) in trajectory.turns.iter().enumerate() {
                let (state, value) = (anchors.of[rollout][turn], returns[rollout][turn]);
                states[state].add(rollout, value);
                actions.entry((state, &data.action)).or_default().add(rollout, value);
            }
        }
        let estimate = |rollout: usize, turn: usize, action: &str| {
            let state = anchors.of[rollout][turn];
            let value = states[state].mean(mean, prior);
            let taken = actions.get(&(state, action)).copied().unwrap_or_default();
            Estimate {
                value,
                action_value: taken.mean(value, prior),
                visits: states[state].count,
                action_visits: taken.count,
            }
        };
        let rows = group.trajectories.iter().enumerate();
        rows.map(|(rollout, trajectory)| {
            let turns = trajectory.turns.iter().enumerate();
            turns.map(|(turn, data)| estimate(rollout, turn, &data.action)).collect()
        })
        .collect()
    }
}

impl Estimator for Rtmc {
    fn name(&self) -> &'static str {
        NAME
    }

    fn fields(&self) -> Vec<TurnField> {
        vec![TurnField::Observation, TurnField::Action]
    }

    fn advantages(
        &self,
        inputs: &CreditInputs<'_>,
        explanation: &mut Explanation,
    ) -> Result<PerTurn<f64>, CreditError> {
        let config = &self.config;
        let penalty =
            InvalidActionPenalty { cost: config.invalid_penalty, scope: config.invalid_penalty_target };
        let (mut turns, mut shared) = (0, 0);
        let mut advantages = PerTurn::default();
        let anchored = Anchors::find_all(inputs.batch, &config.anchor);
        for ((index, group), anchors) in inputs.batch.groups.iter().enumerate().zip(anchored) {
            GroupScores::new(NAME, index, group, penalty)?;
            let returns: Vec<Vec<f64>> = group
                .trajectories
                .iter()
                .map(|trajectory| penalty.step_returns(trajectory, config.gamma))
                .collect();
            let estimates = self.estimates(group, &anchors, &returns);
            turns += estimates.iter().map(Vec::len).sum::<usize>();
            shared += estimates.iter().flatten().filter(|estimate| estimate.visits > 1).count();
            explanation.facts(index, &estimates, |trajectory, turn, estimate| {
                vec![
                    ("step_return", returns[trajectory][turn]),
                    ("anchor", anchors.of[trajectory][turn] as f64),
                    ("value", estimate.value),
                    ("action_value", estimate.action_value),
                    ("visits", estimate.visits as f64),
                    ("action_visits", estimate.action_visits as f64),
                ]
            });
            advantages
                .push(estimates.iter().map(|row| row.iter().map(Estimate::advantage).collect()).collect());
        }
        if turns > 0 {
            explanation.diagnostic("rtmc/shared_turns", shared as f64 / turns as f64);
        }
        Ok(advantages)
    }
}
