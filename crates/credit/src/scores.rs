//! Trajectory returns, invalid-action penalties, and the populations of samples that are compared.

use serde::{Deserialize, Serialize};
use turnwise_core::{Group, Trajectory, Turn};

use crate::CreditError;
use crate::statistics::ROUNDING;

/// Samples over which episode-level statistics are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Population {
    /// Trajectories, each counted once.
    #[default]
    Trajectory,
    /// Turns, each counted once, so long trajectories count more (verl-agent).
    Turn,
}

/// What the invalid-action penalty is subtracted from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PenaltyScope {
    /// The invalid turn's score and step return, after discounting, so that the returns of other
    /// turns stay the same.
    #[default]
    Turn,
    /// The invalid turn's reward, and thereby also the trajectory's return and the step returns of
    /// earlier turns.
    Return,
}

/// Penalty for invalid actions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InvalidActionPenalty {
    /// Penalty of an invalid turn, 0 or more.
    pub cost: f64,
    /// What the penalty is subtracted from.
    pub scope: PenaltyScope,
}

impl InvalidActionPenalty {
    /// Returns the penalty on a turn's reward; 0 if the scope is `turn`.
    pub fn on_reward(&self, valid: bool) -> f64 {
        if valid || self.scope == PenaltyScope::Turn { 0.0 } else { self.cost }
    }

    /// Returns the penalty on a turn's score and step return; 0 if the scope is `return`.
    pub fn on_score(&self, valid: bool) -> f64 {
        if valid || self.scope == PenaltyScope::Return { 0.0 } else { self.cost }
    }

    /// Returns `R_i`, the sum of rewards, penalized if the scope is `return`.
    pub fn outcome_return(&self, trajectory: &Trajectory) -> f64 {
        trajectory.turns.iter().map(|turn| turn.credited_reward() - self.on_reward(turn.valid)).sum()
    }

    /// Returns `R_{i,t} = sum_{k>=t} gamma^(k-t) r_k` per turn, with penalties according to the
    /// scope.
    pub fn step_returns(&self, trajectory: &Trajectory, gamma: f64) -> Vec<f64> {
        // Rewards that cancel out leave rounding errors, which standardization would amplify.
        let (mut following, mut size) = (0.0_f64, 0.0_f64);
        let mut returns: Vec<f64> = trajectory
            .turns
            .iter()
            .rev()
            .map(|turn| {
                let reward = turn.credited_reward() - self.on_reward(turn.valid);
                following = reward + gamma * following;
                size = reward.abs() + gamma * size;
                if following.abs() <= ROUNDING * size {
                    following = 0.0;
                }
                following - self.on_score(turn.valid)
            })
            .collect();
        returns.reverse();
        returns
    }
}

/// Trajectory returns and turn scores of one group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupScores {
    /// `R_i` of each trajectory. If all returns differ from the first return by at most `1e-12`
    /// times the largest sum of absolute rewards, they are set to it.
    pub returns: Vec<f64>,
    /// `R_i` minus the turn's penalty, `[trajectory][turn]`.
    pub turns: Vec<Vec<f64>>,
}

impl GroupScores {
    /// Computes the scores of the batch's group `index`.
    ///
    /// # Errors
    /// Fails if a reward or a sum of rewards is NaN or infinite.
    pub fn new(
        method: &'static str,
        index: usize,
        group: &Group,
        penalty: InvalidActionPenalty,
    ) -> Result<Self, CreditError> {
        let mut returns = Vec::with_capacity(group.trajectories.len());
        let mut size = 0.0_f64;
        for (member, trajectory) in group.trajectories.iter().enumerate() {
            size = size.max(check_rewards(method, index, member, trajectory)?);
            returns.push(penalty.outcome_return(trajectory));
        }
        // The same rewards in another order are the same return.
        if let Some(&first) = returns.first()
            && returns.iter().all(|outcome| (outcome - first).abs() <= ROUNDING * size)
        {
            returns.fill(first);
        }
        let turns = group.trajectories.iter().zip(&returns).map(|(trajectory, outcome)| {
            trajectory.turns.iter().map(|turn| outcome - penalty.on_score(turn.valid)).collect()
        });
        Ok(Self { turns: turns.collect(), returns })
    }

    /// Returns the scores that are compared: trajectory returns, or turn scores.
    pub fn population(&self, population: Population) -> Vec<f64> {
        match population {
            Population::Trajectory => self.returns.clone(),
            Population::Turn => self.turns.iter().flatten().copied().collect(),
        }
    }
}

fn check_rewards(
    method: &'static str,
    group: usize,
    trajectory: usize,
    data: &Trajectory,
) -> Result<f64, CreditError> {
    let mut sum = 0.0_f64;
    for (turn, value) in data.turns.iter().map(Turn::credited_reward).enumerate() {
        sum += value.abs();
        if !sum.is_finite() {
            let (field, value) = if value.is_finite() { ("sum of rewards", sum) } else { ("reward", value) };
            return Err(CreditError::NotFinite { method, field, value, group, trajectory, turn });
        }
    }
    Ok(sum)
}
