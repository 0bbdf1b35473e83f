//! PPO's token-level advantages by generalized advantage estimation (Schulman et al. 2016) from a
//! critic's values.
//!
//! `delta_t = r_t + gamma V_{t+1} - V_t`, `A_t = delta_t + gamma lambda A_{t+1}` over the
//! trajectory's response tokens only, with value 0 after the last token. Value targets are
//! `A_t + V_t`, before whitening. A turn's reward, minus the invalid-action penalty, goes to its
//! last token; rewards of single tokens ([`turnwise_core::Turn::token_rewards`], for the KL in the
//! reward) stay at their tokens.
//!
//! Advantages are whitened over the batch's response tokens, `(A - mean) / sqrt(var + 1e-8)` with
//! the sample variance, or are exactly 0 if the variance is zero. A turn's advantage is the mean
//! over its tokens.
//!
//! Differs from the paper: `bootstrap_across_turns = false` treats each turn as an episode, as in
//! frameworks that train on single turns. A turn without tokens gets advantage 0; its reward goes
//! to the last token before it or, if no token precedes it, to the first turn with tokens.

use serde::{Deserialize, Serialize};
use turnwise_core::{Batch, Group, PerToken, PerTurn, Preset, Table, Trajectory, Turn, Unit};

use crate::registry::{MethodSettings, in_range};
use crate::scores::{GroupScores, InvalidActionPenalty, PenaltyScope};
use crate::statistics::Moments;
use crate::{CreditError, CreditInputs, Estimator, Explanation, RequiredInputs, TurnField};

const NAME: &str = "ppo";

const WHITEN_EPSILON: f64 = 1e-8;

/// Settings of the PPO estimator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PpoConfig {
    /// Discount per token.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub gamma: f64,
    /// GAE's lambda.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub lambda: f64,
    /// Whether the GAE recursion continues across turns.
    pub bootstrap_across_turns: bool,
    /// Whether to whiten over the batch's response tokens.
    pub whiten: bool,
    /// Penalty of an invalid turn.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub invalid_penalty: f64,
}

impl Default for PpoConfig {
    fn default() -> Self {
        Self { gamma: 1.0, lambda: 1.0, bootstrap_across_turns: true, whiten: true, invalid_penalty: 0.1 }
    }
}

/// Advantage and value target per response token.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenAdvantages {
    /// Advantages, whitened if configured.
    pub advantages: PerToken<f64>,
    /// Value targets: values plus unwhitened advantages.
    pub returns: PerToken<f64>,
}

impl MethodSettings for PpoConfig {
    const KIND: &'static str = NAME;
    const PRESETS: &'static [Preset] = &[Preset::new("ppo", "credit.estimator.kind = \"ppo\"")];
    type Method = Ppo;

    fn build(self) -> Result<Ppo, CreditError> {
        Ppo::new(self)
    }
}

/// The PPO estimator.
#[derive(Clone, Debug)]
pub struct Ppo {
    config: PpoConfig,
}

/// Computes GAE over one sequence; the value after the last token is 0.
pub fn gae(rewards: &[f64], values: &[f64], gamma: f64, lambda: f64) -> Vec<f64> {
    let (mut next_value, mut next_advantage) = (0.0, 0.0);
    let mut advantages: Vec<f64> = rewards
        .iter()
        .zip(values)
        .rev()
        .map(|(reward, value)| {
            next_advantage = reward + gamma * next_value - value + gamma * lambda * next_advantage;
            next_value = *value;
            next_advantage
        })
        .collect();
    advantages.reverse();
    advantages
}

impl Ppo {
    /// Creates PPO.
    ///
    /// # Errors
    /// Fails on invalid settings.
    pub fn new(config: PpoConfig) -> Result<Self, CreditError> {
        in_range(NAME, &config)?;
        Ok(Self { config })
    }

    /// Computes advantages and value targets.
    ///
    /// # Errors
    /// Fails if [`crate::ModelInputs::values`] is missing or misshapen, or on NaN or infinity.
    pub fn tokens(&self, inputs: &CreditInputs<'_>) -> Result<TokenAdvantages, CreditError> {
        let config = &self.config;
        let penalty = InvalidActionPenalty { cost: config.invalid_penalty, scope: PenaltyScope::Return };
        let mut result = TokenAdvantages::default();
        for (index, group) in inputs.batch.groups.iter().enumerate() {
            GroupScores::new(NAME, index, group, penalty)?;
            let (mut advantages, mut returns) = (Vec::new(), Vec::new());
            for (member, trajectory) in group.trajectories.iter().enumerate() {
                let tokens = trajectory.response_tokens();
                let values = values(NAME, inputs, index, member, tokens)?;
                let mut rewards = vec![0.0; tokens];
                // Token ranges of separate recursions.
                let mut pieces: Vec<std::ops::Range<usize>> = Vec::new();
                let mut start = 0;
                let mut early = 0.0;
                for turn in &trajectory.turns {
                    let end = start + turn.response_ids.len();
                    let of_tokens: f64 = turn.token_rewards.iter().sum();
                    let of_turn = turn.credited_reward() - of_tokens - penalty.on_reward(turn.valid);
                    if end == 0 {
                        early += of_turn;
                    } else {
                        rewards[end - 1] += of_turn + std::mem::take(&mut early);
                        let own = rewards[start..end].iter_mut().zip(&turn.token_rewards);
                        own.for_each(|(reward, of_token)| *reward += of_token);
                    }
                    pieces.push(start..end);
                    start = end;
                }
                if config.bootstrap_across_turns {
                    pieces = std::iter::once(0..tokens).collect();
                }
                let found: Vec<f64> = pieces
                    .into_iter()
                    .flat_map(|piece| {
                        gae(&rewards[piece.clone()], &values[piece], config.gamma, config.lambda)
                    })
                    .collect();
                returns.push(found.iter().zip(values).map(|(advantage, value)| advantage + value).collect());
                advantages.push(found);
            }
            result.advantages.push(advantages);
            result.returns.push(returns);
        }
        if config.whiten {
            let all: Vec<f64> = result.advantages.values().copied().collect();
            Whitening::of(&all).apply(&mut result.advantages);
        }
        Ok(result)
    }
}

pub(crate) fn values<'a>(
    method: &'static str,
    inputs: &CreditInputs<'a>,
    group: usize,
    trajectory: usize,
    tokens: usize,
) -> Result<&'a [f64], CreditError> {
    let field = "values";
    // Turn of a token; the last turn for positions after all tokens.
    let turn_of = |token: usize| {
        let turns = &inputs.batch.groups[group].trajectories[trajectory].turns;
        let mut end = 0;
        let behind = |turn: &Turn| {
            end += turn.response_ids.len();
            token < end
        };
        turns.iter().position(behind).unwrap_or(turns.len().saturating_sub(1))
    };
    let row = inputs.model_inputs.values.as_ref().and_then(|values| values.row(group, trajectory));
    let Some(row) = row.filter(|row| row.len() == tokens) else {
        let turn = turn_of(row.map_or(0, <[f64]>::len));
        return Err(CreditError::MissingField { method, field, group, trajectory, turn });
    };
    match row.iter().enumerate().find(|(_, value)| !value.is_finite()) {
        Some((token, &value)) => {
            let turn = turn_of(token);
            Err(CreditError::NotFinite { method, field, value, group, trajectory, turn })
        }
        None => Ok(row),
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Whitening {
    mean: f64,
    scale: f64,
}

impl Whitening {
    /// Computes the whitening from the sample variance of `values`; equal values are mapped to 0.
    pub(crate) fn of(values: &[f64]) -> Self {
        let moments = Moments::of(values, 1);
        let variance = moments.std.powi(2) + WHITEN_EPSILON;
        Self { mean: moments.mean, scale: if moments.is_constant() { 0.0 } else { 1.0 / variance.sqrt() } }
    }

    pub(crate) fn apply<U: Unit>(self, table: &mut Table<f64, U>) {
        table.values_mut().for_each(|value| *value = (*value - self.mean) * self.scale);
    }
}

/// Returns the mean over each turn's tokens, or 0 for a turn without tokens.
fn turn_means(trajectory: &Trajectory, tokens: &[f64]) -> Vec<f64> {
    let mut start = 0;
    let mean = |turn: &Turn| {
        let own = &tokens[start..start + turn.response_ids.len()];
        start += own.len();
        if own.is_empty() { 0.0 } else { own.iter().sum::<f64>() / own.len() as f64 }
    };
    trajectory.turns.iter().map(mean).collect()
}

pub(crate) fn of_turns(batch: &Batch, tokens: &PerToken<f64>) -> PerTurn<f64> {
    let group = |(index, group): (usize, &Group)| {
        let rows = group.trajectories.iter().enumerate();
        rows.map(|(member, trajectory)| turn_means(trajectory, &tokens[(index, member)])).collect()
    };
    batch.groups.iter().enumerate().map(group).collect()
}

impl Estimator for Ppo {
    fn name(&self) -> &'static str {
        NAME
    }

    fn required_inputs(&self) -> RequiredInputs {
        RequiredInputs { values: true, ..RequiredInputs::default() }
    }

    fn fields(&self) -> Vec<TurnField> {
        vec![TurnField::Values]
    }

    fn compares_groups(&self) -> bool {
        false
    }

    fn works_on_tokens(&self) -> bool {
        true
    }

    fn advantages(
        &self,
        inputs: &CreditInputs<'_>,
        explanation: &mut Explanation,
    ) -> Result<PerTurn<f64>, CreditError> {
        let tokens = self.tokens(inputs)?;
        for (index, group) in inputs.batch.groups.iter().enumerate() {
            // (mean return, tokens) of each turn.
            let rows: Vec<Vec<(f64, usize)>> = group
                .trajectories
                .iter()
                .enumerate()
                .map(|(member, trajectory)| {
                    let returns = turn_means(trajectory, &tokens.returns[(index, member)]);
                    returns
                        .into_iter()
                        .zip(trajectory.turns.iter().map(|turn| turn.response_ids.len()))
                        .collect()
                })
                .collect();
            explanation.facts(index, &rows, |_, _, &(returns, tokens)| {
                vec![("mean_return", returns), ("tokens", tokens as f64)]
            });
        }
        Ok(of_turns(inputs.batch, &tokens.advantages))
    }

    fn token_advantages(&self, inputs: &CreditInputs<'_>) -> Result<Option<TokenAdvantages>, CreditError> {
        self.tokens(inputs).map(Some)
    }
}
