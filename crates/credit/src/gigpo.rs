//! GiGPO: `A = A_episode + omega A_step` (Feng et al. 2025, "Group-in-Group Policy Optimization",
//! equations 3, 6 and 8).
//!
//! `A_episode` is GRPO's advantage. `A_step` standardizes step returns
//! `R_{i,t} = sum_{k>=t} gamma^(k-t) r_k` over all turns in the same state.
//!
//! Differs from the paper: an invalid-action penalty is subtracted from an invalid turn's score and
//! step return. If the variance is zero, the advantage is exactly 0. The presets use verl-agent's
//! token-mean loss; the paper averages over each turn's tokens, then over turns
//! (`objective.loss_agg_mode = "turn-mean"`, set by `stapo`).

use serde::{Deserialize, Serialize};
use turnwise_core::{PerTurn, Preset};

use crate::anchor::{AnchorConfig, Anchors, Assignment};
use crate::registry::{MethodSettings, in_range};
use crate::scores::{GroupScores, InvalidActionPenalty, PenaltyScope, Population};
use crate::statistics::{Moments, Normalize, Singleton};
use crate::{CreditError, CreditInputs, Estimator, Explanation, TurnField};

const NAME: &str = "gigpo";

/// Settings of GiGPO.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GigpoConfig {
    /// Discount of step returns.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub gamma: f64,
    /// Weight of the step-level advantage.
    #[schemars(range(min = -1000.0, max = 1000.0))]
    pub omega: f64,
    /// Whether to divide by the standard deviation, at both levels.
    pub normalize: Normalize,
    /// Degrees of freedom of the standard deviation: 1 (sample) or 0 (population).
    #[schemars(range(max = 1))]
    pub ddof: u8,
    /// Constant added to the standard deviation before dividing by it.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub epsilon: f64,
    /// Samples over which the episode-level mean and standard deviation are computed.
    pub population: Population,
    /// Episode-level advantage of a sample that is the only one in its population.
    pub single_sample_advantage: Singleton,
    /// Step-level advantage of a turn that is the only one in its anchor group.
    pub single_step_advantage: Singleton,
    /// Penalty of an invalid turn.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub invalid_penalty: f64,
    /// What the invalid-action penalty is subtracted from.
    pub invalid_penalty_target: PenaltyScope,
    /// How anchor states are matched.
    pub anchor: AnchorConfig,
}

impl Default for GigpoConfig {
    fn default() -> Self {
        Self {
            gamma: 0.95,
            omega: 1.0,
            normalize: Normalize::MeanStd,
            ddof: 1,
            epsilon: 1e-6,
            population: Population::Trajectory,
            single_sample_advantage: Singleton::Zero,
            single_step_advantage: Singleton::Zero,
            invalid_penalty: 0.1,
            invalid_penalty_target: PenaltyScope::Turn,
            anchor: AnchorConfig::default(),
        }
    }
}

impl GigpoConfig {
    /// Returns settings that reproduce verl-agent's numbers.
    #[must_use]
    pub fn verl_agent(&self) -> Self {
        Self {
            population: Population::Turn,
            single_sample_advantage: Singleton::Raw,
            anchor: AnchorConfig {
                assignment: Assignment::FirstMatch,
                autojunk: true,
                ..self.anchor.clone()
            },
            ..self.clone()
        }
    }
}

impl MethodSettings for GigpoConfig {
    const KIND: &'static str = NAME;
    const PRESETS: &'static [Preset] = &[
        Preset::new("gigpo", "credit.estimator.kind = \"gigpo\""),
        // STAPO, table 4: GiGPO with DAPO's sampling and clip range.
        Preset::on(
            "gigpo",
            "gigpo-dynamic",
            "objective.clip = { low = 0.2, high = 0.28 }\nrollout.filter_groups.kind = \"dynamic\"",
        ),
    ];
    type Method = Gigpo;

    fn of_verl_agent(&self) -> Option<Self> {
        Some(self.verl_agent())
    }

    fn build(self) -> Result<Gigpo, CreditError> {
        Gigpo::new(self)
    }
}

/// The GiGPO estimator.
#[derive(Clone, Debug)]
pub struct Gigpo {
    config: GigpoConfig,
}

impl Gigpo {
    /// Creates GiGPO.
    ///
    /// # Errors
    /// Fails on invalid settings.
    pub fn new(config: GigpoConfig) -> Result<Self, CreditError> {
        in_range(NAME, &config)?;
        Ok(Self { config })
    }
}

impl Estimator for Gigpo {
    fn name(&self) -> &'static str {
        NAME
    }

    fn fields(&self) -> Vec<TurnField> {
        vec![TurnField::Observation]
    }

    fn advantages(
        &self,
        inputs: &CreditInputs<'_>,
        explanation: &mut Explanation,
    ) -> Result<PerTurn<f64>, CreditError> {
        let config = &self.config;
        let penalty =
            InvalidActionPenalty { cost: config.invalid_penalty, scope: config.invalid_penalty_target };
        let (mut turns_seen, mut states_seen, mut alone) = (0, 0, 0);
        let mut advantages = PerTurn::default();
        let anchored = Anchors::find_all(inputs.batch, &config.anchor);
        for ((index, group), anchors) in inputs.batch.groups.iter().enumerate().zip(anchored) {
            let scores = GroupScores::new(NAME, index, group, penalty)?;
            let moments = Moments::of(&scores.population(config.population), config.ddof);
            let returns: Vec<Vec<f64>> = group
                .trajectories
                .iter()
                .map(|trajectory| penalty.step_returns(trajectory, config.gamma))
                .collect();
            let steps: Vec<Moments> =
                anchors.gather(&returns).iter().map(|values| Moments::of(values, config.ddof)).collect();

            // (episode, step) of each turn.
            let parts: Vec<Vec<(f64, f64)>> = scores
                .turns
                .iter()
                .zip(&returns)
                .zip(&anchors.of)
                .map(|((scores, returns), of)| {
                    let standardise = |moments: &Moments, score, single_sample_advantage| {
                        moments.standardise(score, config.normalize, config.epsilon, single_sample_advantage)
                    };
                    let turns = scores.iter().zip(returns).zip(of);
                    turns
                        .map(|((&score, &value), &anchor)| {
                            (
                                standardise(&moments, score, config.single_sample_advantage),
                                standardise(&steps[anchor], value, config.single_step_advantage),
                            )
                        })
                        .collect()
                })
                .collect();

            explanation.facts(index, &parts, |trajectory, turn, &(episode, step)| {
                let anchor = anchors.of[trajectory][turn];
                vec![
                    ("score", scores.turns[trajectory][turn]),
                    ("mean", moments.mean),
                    ("std", moments.std),
                    ("episode", episode),
                    ("step", step),
                    ("step_return", returns[trajectory][turn]),
                    ("anchor", anchor as f64),
                    ("anchor_size", steps[anchor].count as f64),
                    ("anchor_mean", steps[anchor].mean),
                    ("anchor_std", steps[anchor].std),
                ]
            });
            turns_seen += anchors.of.iter().map(Vec::len).sum::<usize>();
            states_seen += anchors.count;
            alone += steps.iter().filter(|moments| moments.count == 1).count();
            let combine = |&(episode, step): &(f64, f64)| episode + config.omega * step;
            advantages.push(parts.iter().map(|turns| turns.iter().map(combine).collect()).collect());
        }
        if turns_seen > 0 {
            explanation.diagnostic("gigpo/anchor_states_per_turn", states_seen as f64 / turns_seen as f64);
            explanation.diagnostic("gigpo/singleton_turns", alone as f64 / turns_seen as f64);
        }
        Ok(advantages)
    }
}
