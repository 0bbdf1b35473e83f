//! Turn credit: redistributes a trajectory's progress to the turns that led to it (the
//! `turn_credit` algorithm of prime-rl).
//!
//! With `phi_t` the environment's progress after turn t (t = 0, 1, ..):
//! * progress: `v_t = phi_t - phi_{t-1}`, or 0 for the first turn and for turns without a signal;
//!   the change during a turn without a signal counts in the next turn that has one;
//! * smear: `c_t = sum_{s >= t} gamma^(s-t) v_s / Z_s` with `Z_s = 1 + gamma + .. + gamma^s`
//!   divides a turn's progress among that turn and the earlier ones: `sum_t c_t = sum_t v_t = P`;
//! * `A_t <- A_t + (P - mean P) + beta (c_t - c)`, where `mean P` is the group's mean, and `c` the
//!   trajectory's mean credit, weighted by tokens. The last term therefore sums to 0 over the
//!   trajectory's tokens.
//!
//! `P - mean P` is on the scale of the return, so the preset uses GRPO with `normalize = "mean"`.
//! As in prime-rl, gamma defaults to 0.9 and beta to 1.
//!
//! Differs from prime-rl: state scores are the environment's progress, in `[0, 1]`; a trajectory
//! without any progress is an error, not a fallback to plain GRPO. `first_turn` counts the first
//! turn's progress from 0.

use serde::{Deserialize, Serialize};
use turnwise_core::{PerTurn, Preset, Trajectory};

use crate::registry::{MethodSettings, in_range};
use crate::{CreditError, CreditInputs, Explanation, Refinement, TurnField};

const NAME: &str = "turn-credit";

/// Settings of turn credit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TurnCreditConfig {
    /// Decay of redistributed progress per turn: 0 credits only the turn that made the progress; 1
    /// credits that turn and all earlier ones equally.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub gamma: f64,
    /// Strength of the redistribution between turns.
    #[schemars(range(min = 0.0, max = 1000.0))]
    pub beta: f64,
    /// Whether to add net progress, minus the group's mean, to all turns.
    pub net_progress: bool,
    /// Whether to count the first turn's progress from 0; otherwise progress is counted from the
    /// state after the first turn.
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

/// The turn-credit refinement.
#[derive(Clone, Debug)]
pub struct TurnCredit {
    config: TurnCreditConfig,
}

/// Returns the change of progress during each turn, given the progress after each turn (`levels`).
/// With `first_turn`, the first turn's progress counts from 0.
pub fn progress(levels: &[Option<f64>], first_turn: bool) -> Vec<f64> {
    let mut before = first_turn.then_some(0.0);
    let change = |level: &Option<f64>| {
        let Some(level) = *level else { return 0.0 };
        level - before.replace(level).unwrap_or(level)
    };
    levels.iter().map(change).collect()
}

/// Divides each turn's progress among that turn and the earlier ones, weighted by `gamma` to the
/// power of the distance in turns.
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

/// Returns the token-weighted mean credit, or the plain mean without tokens.
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
    /// Creates turn credit.
    ///
    /// # Errors
    /// Fails on an invalid gamma or beta.
    pub fn new(config: TurnCreditConfig) -> Result<Self, CreditError> {
        in_range(NAME, &config)?;
        Ok(Self { config })
    }

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
            // (credit, level, shift) of each turn.
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
