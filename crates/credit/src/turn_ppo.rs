//! Turn-PPO: generalized advantage estimation over turns instead of tokens (Li et al. 2025,
//! "Turn-PPO: Turn-Level Advantage Estimation with PPO for Improved Multi-Turn RL in Agentic LLMs",
//! arXiv 2512.17008).
//!
//! `delta_k = r_k + gamma V_{k+1} - V_k`, `A_k = delta_k + gamma lambda A_{k+1}`, with the critic's
//! value `V_k` at turn k's first token (0 after the last turn). `r_k` is the turn's reward minus
//! the invalid-action penalty. A turn's tokens share its advantage. Advantages are whitened over
//! turns, `(A - mean) / sqrt(var + 1e-8)`, or exactly 0 if the variance is zero. The defaults,
//! gamma 0.99 and lambda 0.9, worked best in the paper. The preset uses turn-level importance
//! ratios (as in SORL, the geometric mean over a turn's tokens), because the paper clips whole
//! turns.
//!
//! Differs from the paper: the critic is trained toward `A_k + V_k` at each token of the turn, but
//! only its value at the turn's first token is used. A turn without tokens is not a step; its
//! reward goes to the previous turn with tokens or, if no such turn precedes it, to the first turn
//! with tokens.

use serde::{Deserialize, Serialize};
use turnwise_core::{PerTurn, Preset, Trajectory};

use crate::gae::{TokenAdvantages, Whitening, gae, of_turns, values};
use crate::registry::{MethodSettings, in_range};
use crate::scores::{GroupScores, InvalidActionPenalty, PenaltyScope};
use crate::{CreditError, CreditInputs, Estimator, Explanation, RequiredInputs, TurnField};

const NAME: &str = "turn-ppo";

/// Settings of Turn-PPO.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TurnPpoConfig {
    /// Discount per turn.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub gamma: f64,
    /// GAE's lambda per turn.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub lambda: f64,
    /// Whether to whiten over the batch's turns.
    pub whiten: bool,
    /// Penalty of an invalid turn.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub invalid_penalty: f64,
}

impl Default for TurnPpoConfig {
    fn default() -> Self {
        Self { gamma: 0.99, lambda: 0.9, whiten: true, invalid_penalty: 0.1 }
    }
}

impl MethodSettings for TurnPpoConfig {
    const KIND: &'static str = NAME;
    const PRESETS: &'static [Preset] =
        &[Preset::new(NAME, "credit.estimator.kind = \"turn-ppo\"\nobjective.ratio = \"turn\"")];
    type Method = TurnPpo;

    fn build(self) -> Result<TurnPpo, CreditError> {
        TurnPpo::new(self)
    }
}

/// The Turn-PPO estimator.
#[derive(Clone, Debug)]
pub struct TurnPpo {
    config: TurnPpoConfig,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    tokens: usize,
    /// Reward of the turn, plus the rewards of adjacent turns without tokens.
    reward: f64,
    value: f64,
}

fn steps(trajectory: &Trajectory, values: &[f64], penalty: InvalidActionPenalty) -> Vec<Step> {
    let mut found: Vec<Step> = Vec::new();
    let (mut start, mut early) = (0, 0.0);
    for turn in &trajectory.turns {
        let reward = turn.credited_reward() - penalty.on_reward(turn.valid);
        let tokens = turn.response_ids.len();
        if tokens > 0 {
            found.push(Step { tokens, reward: reward + std::mem::take(&mut early), value: values[start] });
            start += tokens;
        } else if let Some(last) = found.last_mut() {
            last.reward += reward;
        } else {
            early += reward;
        }
    }
    found
}

fn spread(steps: &[Step], of_steps: impl Iterator<Item = f64>) -> Vec<f64> {
    steps.iter().zip(of_steps).flat_map(|(step, value)| std::iter::repeat_n(value, step.tokens)).collect()
}

impl TurnPpo {
    /// Creates Turn-PPO.
    ///
    /// # Errors
    /// Fails on invalid settings.
    pub fn new(config: TurnPpoConfig) -> Result<Self, CreditError> {
        in_range(NAME, &config)?;
        Ok(Self { config })
    }

    /// Computes advantages and value targets, equal within a turn.
    ///
    /// # Errors
    /// Fails if [`crate::ModelInputs::values`] is missing or misshapen, or on NaN or infinity.
    pub fn tokens(&self, inputs: &CreditInputs<'_>) -> Result<TokenAdvantages, CreditError> {
        let config = &self.config;
        let penalty = InvalidActionPenalty { cost: config.invalid_penalty, scope: PenaltyScope::Return };
        let mut result = TokenAdvantages::default();
        let mut all: Vec<f64> = Vec::new();
        for (index, group) in inputs.batch.groups.iter().enumerate() {
            GroupScores::new(NAME, index, group, penalty)?;
            let (mut advantages, mut returns) = (Vec::new(), Vec::new());
            for (member, trajectory) in group.trajectories.iter().enumerate() {
                let values = values(NAME, inputs, index, member, trajectory.response_tokens())?;
                let steps = steps(trajectory, values, penalty);
                let rewards: Vec<f64> = steps.iter().map(|step| step.reward).collect();
                let values: Vec<f64> = steps.iter().map(|step| step.value).collect();
                let found = gae(&rewards, &values, config.gamma, config.lambda);
                returns.push(spread(
                    &steps,
                    found.iter().zip(&values).map(|(advantage, value)| advantage + value),
                ));
                advantages.push(spread(&steps, found.iter().copied()));
                all.extend(found);
            }
            result.advantages.push(advantages);
            result.returns.push(returns);
        }
        if config.whiten {
            Whitening::of(&all).apply(&mut result.advantages);
        }
        Ok(result)
    }
}

impl Estimator for TurnPpo {
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
        let returns = of_turns(inputs.batch, &tokens.returns);
        for (index, group) in inputs.batch.groups.iter().enumerate() {
            explanation.facts(index, &returns[index], |trajectory, turn, &target| {
                let tokens = group.trajectories[trajectory].turns[turn].response_ids.len();
                vec![("return", target), ("tokens", tokens as f64)]
            });
        }
        Ok(of_turns(inputs.batch, &tokens.advantages))
    }

    fn token_advantages(&self, inputs: &CreditInputs<'_>) -> Result<Option<TokenAdvantages>, CreditError> {
        self.tokens(inputs).map(Some)
    }
}
