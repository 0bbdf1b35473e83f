//! Turn credit: the progress of a trajectory, given back to the turns that led to it (prime-rl, algorithm `turn_credit`).
//!
//! With `phi_t` the environment's progress after turn t (t = 0, 1, ..):
//! * progress of a turn: `v_t = phi_t - phi_{t-1}`, and 0 for the first turn, whose state counts as the start. A turn without a signal has 0,
//!   and what it gained belongs to the next turn that has one;
//! * smear: `c_t = sum_{s >= t} gamma^(s-t) v_s / Z_s` with `Z_s = 1 + gamma + .. + gamma^s`, so that each turn's progress is divided among
//!   it and the turns before it, once: `sum_t c_t = sum_t v_t = P`;
//! * `A_t <- A_t + (P - mean P) + beta (c_t - c)`, where the mean is over the group and `c` is the trajectory's mean credit, each
//!   turn as heavy as its response has tokens. The last term moves credit between the turns of a trajectory and adds none: its sum over
//!   tokens is 0.
//!
//! `P - mean P` makes the trajectory's level that of reward and net progress together, as there, so that it belongs on a base without a
//! division by the deviation: the preset has GRPO with `normalize = "mean"`. Defaults: prime-rl's, gamma 0.9 and beta 1.
//!
//! Differs from prime-rl: the scores of states are the environment's progress in `[0, 1]`; a trajectory without any signal is an error and
//! not plain GRPO; `first_turn` lets the first turn's progress from 0 count.

use serde::{Deserialize, Serialize};
use turnwise_core::{PerTurn, Preset, Trajectory};

use crate::registry::{MethodSettings, in_range};
use crate::{CreditError, CreditInputs, Explanation, Refinement, TurnField};

const NAME: &str = "turn-credit";

/// The switches of turn credit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TurnCreditConfig {
    /// Decay of the smear by turn of distance: 0 credits the turn alone whose progress it is, 1 all turns up to it alike.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub gamma: f64,
    /// Strength of the shift between turns.
    #[schemars(range(min = 0.0, max = 1000.0))]
    pub beta: f64,
    /// Add the trajectory's net progress, less its group's mean, to the level of all its turns.
    pub net_progress: bool,
    /// Count the first turn's progress from 0; otherwise the state after it is the start.
    pub first_turn: bool,
}

impl Default for TurnCreditConfig {
    fn default() -> Self {
        Self { gamma: 0.9, beta: 1.0, net_progress: true, first_turn: false }
    }
}

impl MethodSettings for TurnCreditConfig {
    const KIND: &'static str = NAME;
    const PRESETS: &'static [Preset] = &[Preset::on(
        "grpo",
        NAME,
        "credit.estimator = { normalize = \"mean\", invalid_penalty = 0.0 }\n\
         credit.refinements = [{ kind = \"turn-credit\" }]",
    )];
    type Method = TurnCredit;

    fn build(self) -> Result<TurnCredit, CreditError> {
        TurnCredit::new(self)
    }
}

/// The refinement.
#[derive(Clone, Debug)]
pub struct TurnCredit {
    config: TurnCreditConfig,
}

/// Returns the progress of every turn from the levels after them. With `first_turn` the first level changed from 0.
pub fn progress(levels: &[Option<f64>], first_turn: bool) -> Vec<f64> {
    let mut before = first_turn.then_some(0.0);
    let change = |level: &Option<f64>| {
        let Some(level) = *level else { return 0.0 };
        level - before.replace(level).unwrap_or(level)
    };
    levels.iter().map(change).collect()
}

/// Divides the progress of every turn among it and the turns before it, by `gamma` to the power of the distance; the sum stays.
pub fn smear(progress: &[f64], gamma: f64) -> Vec<f64> {
    let mut weight = 0.0;
    let shares: Vec<f64> = progress
        .iter()
        .map(|value| {
            weight = 1.0 + gamma * weight;
            value / weight
        })
        .collect();
    let mut credit = 0.0;
    let mut credits: Vec<f64> = shares
        .iter()
        .rev()
        .map(|share| {
            credit = share + gamma * credit;
            credit
        })
        .collect();
    credits.reverse();
    credits
}

/// The mean of the credits, each as heavy as its response has tokens; without any token all alike.
fn centre(trajectory: &Trajectory, credits: &[f64]) -> f64 {
    let has_tokens = trajectory.response_tokens() > 0;
    let weight = |tokens: usize| if has_tokens { tokens as f64 } else { 1.0 };
    let (sum, all) = trajectory.turns.iter().zip(credits).fold((0.0, 0.0), |(sum, all), (turn, credit)| {
        let weight = weight(turn.response_ids.len());
        (sum + weight * credit, all + weight)
    });
    if all > 0.0 { sum / all } else { 0.0 }
}

impl TurnCredit {
    /// Turn credit with these switches.
    ///
    /// # Errors
    /// A gamma outside [0, 1], or a beta that is negative or not finite.
    pub fn new(config: TurnCreditConfig) -> Result<Self, CreditError> {
        in_range(NAME, &config)?;
        Ok(Self { config })
    }

    /// The progress of every turn of a trajectory.
    fn progress(&self, data: &Trajectory, group: usize, trajectory: usize) -> Result<Vec<f64>, CreditError> {
        let (method, field) = (NAME, "progress");
        let levels: Vec<Option<f64>> = data.turns.iter().map(|turn| turn.progress).collect();
        if !levels.is_empty() && levels.iter().all(Option::is_none) {
            return Err(CreditError::MissingField { method, field, group, trajectory, turn: 0 });
        }
        match levels.iter().enumerate().find(|(_, level)| level.is_some_and(|level| !level.is_finite())) {
            Some((turn, &level)) => {
                let value = level.unwrap_or(f64::NAN);
                Err(CreditError::NotFinite { method, field, value, group, trajectory, turn })
            }
            None => Ok(progress(&levels, self.config.first_turn)),
        }
    }
}

impl Refinement for TurnCredit {
    fn name(&self) -> &'static str {
        NAME
    }

    fn fields(&self) -> Vec<TurnField> {
        vec![TurnField::Progress]
    }

    fn refine(
        &self,
        inputs: &CreditInputs<'_>,
        advantages: &mut PerTurn<f64>,
        explanation: &mut Explanation,
    ) -> Result<(), CreditError> {
        let TurnCreditConfig { gamma, beta, net_progress, .. } = self.config;
        let (mut gained, mut trajectories) = (0.0, 0.0);
        for (index, group) in inputs.batch.groups.iter().enumerate() {
            let progress: Vec<Vec<f64>> = group
                .trajectories
                .iter()
                .enumerate()
                .map(|(member, trajectory)| self.progress(trajectory, index, member))
                .collect::<Result<_, _>>()?;
            let net: Vec<f64> = progress.iter().map(|row| row.iter().sum()).collect();
            let mean = net.iter().sum::<f64>() / net.len().max(1) as f64;
            gained += net.iter().sum::<f64>();
            trajectories += net.len() as f64;
            // (credit, level, shift) of every turn.
            let mut facts: Vec<Vec<(f64, f64, f64)>> = Vec::with_capacity(net.len());
            for (member, trajectory) in group.trajectories.iter().enumerate() {
                let credits = smear(&progress[member], gamma);
                let centre = centre(trajectory, &credits);
                let level = if net_progress { net[member] - mean } else { 0.0 };
                let mut row = Vec::with_capacity(credits.len());
                for (advantage, credit) in advantages[index][member].iter_mut().zip(credits) {
                    let shift = beta * (credit - centre);
                    row.push((credit, level, shift));
                    *advantage += level + shift;
                }
                facts.push(row);
            }
            explanation.facts(index, &facts, |_, _, &(credit, level, shift)| {
                vec![("credit", credit), ("level", level), ("shift", shift)]
            });
        }
        if trajectories > 0.0 {
            explanation.diagnostic("turn_credit/net_progress", gained / trajectories);
        }
        Ok(())
    }
}
