//! IGPO: rewards a turn for raising the policy's probability of the reference answer (Wang et al.
//! 2025, "Information Gain-based Policy Optimization", arXiv 2510.14967).
//!
//! With `p_{i,t} = exp(mean_j log pi(a_j | prompt of turn t, a_<j))` over the tokens of the answer
//! `a`:
//! * Turn t's reward is its information gain `r_{i,t} = p_{i,t+1} - p_{i,t}`; the last turn's
//!   reward is the outcome `R_i`.
//! * Rewards are standardized over the group, `r' = (r - mean) / (std + eps)`, gains and outcomes
//!   together (`joint`) or separately (`separate`, an option of the authors' code).
//! * `A_{i,t} = sum_{k >= t} gamma^(k-t) r'_{i,k}` replaces the estimator's advantage.
//!
//! The sampling policy scores the answer ([`turnwise_core::Task::answer`]) after each turn's exact
//! prompt and `lead` ([`ScoreRequest`]): one extra forward pass per prompt, without a gradient.
//!
//! Differs from the paper:
//! * `lead` is only the tag `<answer>`, without the paper's sentence ("Now there's enough
//!   information to answer"), which policies trained from scratch have never seen.
//! * The outcome is the environment's return; the paper uses F1, or -1 for a malformed episode.
//! * The estimator's invalid-action penalty has no effect, because the estimator's advantage is
//!   replaced.
//! * If the answer does not fit the context after a prompt, the gains before and after that prompt
//!   are 0 (`igpo/unscored`).

use serde::{Deserialize, Serialize};
use turnwise_core::{Batch, PerTurn, Preset, Trajectory};

use crate::registry::{MethodSettings, in_range};
use crate::statistics::{Moments, Normalize, Singleton};
use crate::{CreditError, CreditInputs, Explanation, Refinement, RequiredInputs, ScoreRequest};

const NAME: &str = "igpo";

/// Rewards that are standardized together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Standardize {
    /// All rewards of a group.
    #[default]
    Joint,
    /// Information gains and outcomes separately.
    Separate,
}

/// Settings of IGPO.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IgpoConfig {
    /// Discount per turn.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub gamma: f64,
    /// Rewards that are standardized together.
    pub standardize: Standardize,
    /// Unscored text between prompt and answer. Trailing spaces become part of the answer's first
    /// token.
    pub lead: String,
    /// Constant added to the standard deviation before dividing by it.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub epsilon: f64,
}

impl Default for IgpoConfig {
    fn default() -> Self {
        Self { gamma: 1.0, standardize: Standardize::Joint, lead: "<answer> ".into(), epsilon: 1e-6 }
    }
}

impl MethodSettings for IgpoConfig {
    const KIND: &'static str = NAME;
    const PRESETS: &'static [Preset] =
        &[Preset::on("grpo", NAME, "credit.refinements = [{ kind = \"igpo\" }]")];
    type Method = Igpo;

    fn build(self) -> Result<Igpo, CreditError> {
        Igpo::new(self)
    }
}

/// The IGPO refinement.
#[derive(Clone, Debug)]
pub struct Igpo {
    config: IgpoConfig,
}

impl Igpo {
    /// Creates IGPO.
    ///
    /// # Errors
    /// Fails on a setting out of range.
    pub fn new(config: IgpoConfig) -> Result<Self, CreditError> {
        in_range(NAME, &config)?;
        Ok(Self { config })
    }

    /// Returns the answer's probability before each turn; `None` if the answer does not fit the
    /// context.
    fn likelihoods(inputs: &CreditInputs<'_>) -> Result<PerTurn<Option<f64>>, CreditError> {
        for (group, data) in inputs.batch.groups.iter().enumerate() {
            let lacks = |one: &Trajectory| one.task.answer().is_none() && !one.turns.is_empty();
            if let Some(trajectory) = data.trajectories.iter().position(lacks) {
                let (method, field) = (NAME, "task.metadata.answer");
                return Err(CreditError::MissingField { method, field, group, trajectory, turn: 0 });
            }
        }
        let (found, expected) =
            (inputs.scores().len(), inputs.batch.trajectories().map(|one| one.turns.len()).sum());
        if found != expected {
            return Err(CreditError::Scores { found, expected });
        }
        let mut scores = inputs.scores().iter();
        Ok(PerTurn::from_fn(inputs.batch, |_, _, _| scores.next().and_then(|score| likelihood(score))))
    }

    fn rewards(batch: &Batch, likelihoods: &PerTurn<Option<f64>>) -> PerTurn<f64> {
        PerTurn::from_fn(batch, |group, trajectory, turn| {
            let data = &batch.groups[group].trajectories[trajectory];
            let of = |turn: usize| likelihoods[(group, trajectory, turn)];
            if turn + 1 == data.turns.len() {
                data.outcome_return()
            } else {
                of(turn + 1).zip(of(turn)).map_or(0.0, |(after, before)| after - before)
            }
        })
    }

    fn standardize(&self, rows: &mut [Vec<f64>]) {
        let epsilon = self.config.epsilon;
        match self.config.standardize {
            Standardize::Joint => standardize(rows.iter_mut().flatten(), epsilon),
            Standardize::Separate => {
                standardize(rows.iter_mut().filter_map(|row| row.last_mut()), epsilon);
                let gains =
                    rows.iter_mut().filter_map(|row| row.split_last_mut()).flat_map(|(_, gains)| gains);
                standardize(gains, epsilon);
            }
        }
    }
}

fn standardize<'a>(rewards: impl Iterator<Item = &'a mut f64>, epsilon: f64) {
    let rewards: Vec<&mut f64> = rewards.collect();
    let values: Vec<f64> = rewards.iter().map(|reward| **reward).collect();
    let moments = Moments::of(&values, 1);
    for (reward, value) in rewards.into_iter().zip(values) {
        *reward = moments.standardise(value, Normalize::MeanStd, epsilon, Singleton::Zero);
    }
}

fn likelihood(score: &[f32]) -> Option<f64> {
    let mean = score.iter().copied().map(f64::from).sum::<f64>() / score.len() as f64;
    (!score.is_empty()).then(|| mean.exp())
}

impl Refinement for Igpo {
    fn name(&self) -> &'static str {
        NAME
    }

    fn required_inputs(&self) -> RequiredInputs {
        RequiredInputs { scores: true, ..RequiredInputs::default() }
    }

    fn score_requests(&self, batch: &Batch) -> Vec<ScoreRequest> {
        let mut requests = Vec::new();
        for (index, group) in batch.groups.iter().enumerate() {
            for (member, trajectory) in group.trajectories.iter().enumerate() {
                let Some(answer) = trajectory.task.answer() else { continue };
                requests.extend((0..trajectory.turns.len()).map(|turn| ScoreRequest {
                    lead: self.config.lead.clone(),
                    ..ScoreRequest::of_text(index, member, turn, answer)
                }));
            }
        }
        requests
    }

    fn refine(
        &self,
        inputs: &CreditInputs<'_>,
        advantages: &mut PerTurn<f64>,
        explanation: &mut Explanation,
    ) -> Result<(), CreditError> {
        let likelihoods = Self::likelihoods(inputs)?;
        if let Some(((group, trajectory, turn), value)) =
            likelihoods.iter().find(|(_, value)| value.is_some_and(|value| !value.is_finite()))
        {
            let (method, field, value) = (NAME, "score of the answer", value.unwrap_or(f64::NAN));
            return Err(CreditError::NotFinite { method, field, value, group, trajectory, turn });
        }
        let rewards = Self::rewards(inputs.batch, &likelihoods);
        for (index, group) in rewards.groups().enumerate() {
            let mut standardized = group.clone();
            self.standardize(&mut standardized);
            explanation.facts(index, group, |member, turn, &reward| {
                let probability = likelihoods[(index, member, turn)];
                let mut facts: Vec<_> = probability.map(|p| ("probability", p)).into_iter().collect();
                facts.extend([("reward", reward), ("standardized", standardized[member][turn])]);
                facts
            });
            for (advantages, standardized) in advantages[index].iter_mut().zip(&standardized) {
                let mut following = 0.0;
                for (advantage, reward) in advantages.iter_mut().zip(standardized).rev() {
                    following = reward + self.config.gamma * following;
                    *advantage = following;
                }
            }
        }
        let gains: Vec<f64> = rewards
            .rows()
            .flat_map(|row| row.split_last().map_or(&[][..], |(_, gains)| gains))
            .map(|gain| gain.abs())
            .collect();
        explanation.diagnostic("igpo/gain_abs_mean", gains.iter().sum::<f64>() / gains.len().max(1) as f64);
        let unscored = likelihoods.values().filter(|value| value.is_none()).count();
        let share = unscored as f64 / likelihoods.values().count().max(1) as f64;
        explanation.diagnostic("igpo/unscored", share);
        Ok(())
    }
}
