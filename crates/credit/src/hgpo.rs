//! HGPO: step advantages from a hierarchy of groups that share increasingly long histories (He et
//! al. 2026, "Hierarchy-of-Groups Policy Optimization for Long-Horizon Agentic Tasks").
//!
//! At level `k = 1..=K`, turns with the same last `k` observations (or the same whole history, if
//! it is shorter) form a cluster, and `A_k` standardizes step returns within it. The advantage is
//! `A = sum_k w_k A_k / sum_k w_k` with `w_k = (k + 1)^alpha`, over the levels at which the turn's
//! cluster has at least two turns. If the turn is alone in its cluster at every level, the
//! advantage is 0.
//!
//! Differs from the paper: weights are renormalized over a turn's levels, so that turns in small
//! clusters are not scaled down. An invalid-action penalty is subtracted from an invalid turn's
//! step return. If the variance in a cluster is zero, `A_k` is exactly 0.
//!
//! Three settings follow the authors' code (a verl-agent recipe): `skip_zero_levels` excludes the
//! weights of levels with advantage 0, `skip_short_histories` skips level `k` for turns with fewer
//! than `k` observations, and `base_group` adds the trajectory's advantage as level 0.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use turnwise_core::{Group, PerTurn, Preset, TurnKind};

use crate::hashing::FastMap;
use crate::registry::{MethodSettings, in_range};
use crate::scores::{GroupScores, InvalidActionPenalty, PenaltyScope, Population};
use crate::statistics::{Moments, Normalize, Singleton};
use crate::{CreditError, CreditInputs, Estimator, Explanation, TurnField};

const NAME: &str = "hgpo";

/// Level 0: the trajectory's GRPO advantage (sample standard deviation), with weight 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BaseGroup {
    /// No level 0 (paper).
    #[default]
    None,
    /// Level 0, standardized over the group's trajectories.
    Trajectory,
    /// Level 0, standardized over the group's turns, like verl-agent's `base_group`.
    Turn,
}

/// Settings of HGPO.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HgpoConfig {
    /// Discount of step returns.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub gamma: f64,
    /// Number of observations in the longest shared history; K in the paper.
    #[schemars(range(min = 1, max = 1000))]
    pub levels: usize,
    /// Exponent of level weights; higher values favor longer histories.
    #[schemars(range(min = -100.0, max = 100.0))]
    pub alpha: f64,
    /// Whether to divide by the standard deviation.
    pub normalize: Normalize,
    /// Degrees of freedom of the standard deviation: 0 (population) or 1 (sample).
    #[schemars(range(max = 1))]
    pub ddof: u8,
    /// Constant added to the standard deviation before dividing by it.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub epsilon: f64,
    /// Penalty of an invalid turn.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub invalid_penalty: f64,
    /// What the invalid-action penalty is subtracted from.
    pub invalid_penalty_target: PenaltyScope,
    /// Exclude the weights of levels with advantage 0, like the authors' code.
    pub skip_zero_levels: bool,
    /// Skip level k for turns with fewer than k observations, like the authors' code; if off, the
    /// whole histories of such turns are compared instead.
    pub skip_short_histories: bool,
    /// Whether and how the trajectory's advantage is used as level 0.
    pub base_group: BaseGroup,
}

impl Default for HgpoConfig {
    fn default() -> Self {
        Self {
            gamma: 0.95,
            levels: 3,
            alpha: 1.0,
            normalize: Normalize::MeanStd,
            ddof: 0,
            epsilon: 1e-6,
            invalid_penalty: 0.1,
            invalid_penalty_target: PenaltyScope::Turn,
            skip_zero_levels: false,
            skip_short_histories: false,
            base_group: BaseGroup::None,
        }
    }
}

impl HgpoConfig {
    /// Returns settings that reproduce verl-agent's numbers.
    #[must_use]
    pub fn verl_agent(&self) -> Self {
        let base_group = match self.base_group {
            BaseGroup::None => BaseGroup::None,
            BaseGroup::Trajectory | BaseGroup::Turn => BaseGroup::Turn,
        };
        Self { skip_zero_levels: true, skip_short_histories: true, base_group, ..self.clone() }
    }
}

impl MethodSettings for HgpoConfig {
    const KIND: &'static str = NAME;
    const PRESETS: &'static [Preset] = &[Preset::new("hgpo", "credit.estimator.kind = \"hgpo\"")];
    type Method = Hgpo;

    fn of_verl_agent(&self) -> Option<Self> {
        Some(self.verl_agent())
    }

    fn build(self) -> Result<Hgpo, CreditError> {
        Hgpo::new(self)
    }
}

/// The HGPO estimator.
#[derive(Clone, Debug)]
pub struct Hgpo {
    config: HgpoConfig,
}

impl Hgpo {
    /// Creates HGPO.
    ///
    /// # Errors
    /// Fails on invalid settings.
    pub fn new(config: HgpoConfig) -> Result<Self, CreditError> {
        in_range(NAME, &config)?;
        let refuse = |reason| Err(CreditError::Setting { method: NAME, reason });
        if !((config.levels + 1) as f64).powf(config.alpha).is_normal() {
            return refuse(format!(
                "alpha is {}; (levels + 1)^alpha must be a positive number",
                config.alpha
            ));
        }
        Ok(Self { config })
    }

    /// Returns, for each level, the clusters `[trajectory][turn]` and their number. A turn's key
    /// combines its observation with the previous turn's cluster at the level below, so each level
    /// takes one lookup per turn.
    fn clusters(&self, group: &Group) -> Vec<(Vec<Vec<usize>>, usize)> {
        let mut texts: FastMap<(TurnKind, &str), usize> = FastMap::default();
        let observations: Vec<Vec<usize>> = group
            .trajectories
            .iter()
            .map(|trajectory| {
                let mut id = |text| {
                    let next = texts.len();
                    *texts.entry(text).or_insert(next)
                };
                trajectory.turns.iter().map(|turn| id((turn.kind, turn.state_key()))).collect()
            })
            .collect();
        let mut levels = vec![(observations.clone(), texts.len())];
        while levels.len() < self.config.levels {
            let mut ids: FastMap<(Option<usize>, usize), usize> = FastMap::default();
            let (shorter, _) = &levels[levels.len() - 1];
            let of = observations
                .iter()
                .zip(shorter)
                .map(|(observations, shorter)| {
                    let key =
                        |turn: usize| (turn.checked_sub(1).map(|before| shorter[before]), observations[turn]);
                    (0..observations.len())
                        .map(|turn| {
                            let next = ids.len();
                            *ids.entry(key(turn)).or_insert(next)
                        })
                        .collect()
                })
                .collect();
            levels.push((of, ids.len()));
        }
        levels
    }

    fn counts(&self, advantage: f64) -> bool {
        !(self.config.skip_zero_levels && advantage == 0.0)
    }

    fn base_advantages(&self, scores: &GroupScores) -> Option<Vec<Vec<f64>>> {
        let population = match self.config.base_group {
            BaseGroup::None => return None,
            BaseGroup::Trajectory => Population::Trajectory,
            BaseGroup::Turn => Population::Turn,
        };
        let moments = Moments::of(&scores.population(population), 1);
        let advantage = |&score: &f64| {
            moments.standardise(score, self.config.normalize, self.config.epsilon, Singleton::Zero)
        };
        Some(scores.turns.iter().map(|turns| turns.iter().map(advantage).collect()).collect())
    }
}

#[derive(Clone, Copy, Default)]
struct Sum {
    advantages: f64,
    weights: f64,
    levels: usize,
}

impl Sum {
    fn add(&mut self, weight: f64, advantage: f64) {
        self.advantages += weight * advantage;
        self.weights += weight;
        self.levels += 1;
    }

    fn mean(&self) -> f64 {
        if self.weights > 0.0 { self.advantages / self.weights } else { 0.0 }
    }
}

#[derive(Clone, Copy)]
struct Level {
    anchor: usize,
    size: usize,
    advantage: Option<f64>,
}

fn facts(step_return: f64, sum: &Sum, base: Option<f64>, levels: &[Level]) -> Vec<(Cow<'static, str>, f64)> {
    let mut facts: Vec<(Cow<'static, str>, f64)> = vec![
        ("step_return".into(), step_return),
        ("levels".into(), sum.levels as f64),
        ("weight".into(), sum.weights),
    ];
    facts.extend(base.map(|base| ("base".into(), base)));
    if let Some(&Level { anchor, size, .. }) = levels.first() {
        facts.extend([("anchor".into(), anchor as f64), ("anchor_size".into(), size as f64)]);
    }
    for (level, &Level { size, advantage, .. }) in levels.iter().enumerate() {
        if let Some(advantage) = advantage {
            facts.push((format!("level_{}", level + 1).into(), advantage));
            facts.push((format!("level_{}_size", level + 1).into(), size as f64));
        }
    }
    facts
}

impl Estimator for Hgpo {
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
        let mut advantages = PerTurn::default();
        for (index, group) in inputs.batch.groups.iter().enumerate() {
            let scores = GroupScores::new(NAME, index, group, penalty)?;
            let base = self.base_advantages(&scores);
            let returns: Vec<Vec<f64>> = group
                .trajectories
                .iter()
                .map(|trajectory| penalty.step_returns(trajectory, config.gamma))
                .collect();
            let mut sums: Vec<Vec<Sum>> =
                returns.iter().map(|turns| vec![Sum::default(); turns.len()]).collect();
            for (sum, &advantage) in sums.iter_mut().flatten().zip(base.iter().flatten().flatten()) {
                if self.counts(advantage) {
                    sum.add(1.0, advantage);
                }
            }
            let mut recorded: Vec<Vec<Vec<Level>>> = Vec::new();
            if explanation.is_on() {
                recorded = returns.iter().map(|turns| vec![Vec::new(); turns.len()]).collect();
            }
            for (level, (of, count)) in self.clusters(group).into_iter().enumerate() {
                let weight = ((level + 2) as f64).powf(config.alpha);
                let mut members = vec![Vec::new(); count];
                for (of, returns) in of.iter().zip(&returns) {
                    of.iter().zip(returns).for_each(|(&cluster, &value)| members[cluster].push(value));
                }
                let moments: Vec<Moments> =
                    members.iter().map(|values| Moments::of(values, config.ddof)).collect();
                for (row, ((of, returns), sums)) in of.iter().zip(&returns).zip(&mut sums).enumerate() {
                    for (turn, ((&cluster, &value), sum)) in of.iter().zip(returns).zip(sums).enumerate() {
                        let moments = &moments[cluster];
                        let advantage =
                            moments.standardise(value, config.normalize, config.epsilon, Singleton::Zero);
                        // Turn t has t + 1 observations; level index l compares l + 1.
                        let short = config.skip_short_histories && turn < level;
                        let counted = moments.count > 1 && !short && self.counts(advantage);
                        if counted {
                            sum.add(weight, advantage);
                        }
                        if let Some(recorded) = recorded.get_mut(row) {
                            let advantage = counted.then_some(advantage);
                            recorded[turn].push(Level { anchor: cluster, size: moments.count, advantage });
                        }
                    }
                }
            }
            explanation.facts(index, &sums, |trajectory, turn, sum| {
                let base = base.as_ref().map(|base| base[trajectory][turn]).filter(|&base| self.counts(base));
                facts(returns[trajectory][turn], sum, base, &recorded[trajectory][turn])
            });
            advantages.push(sums.iter().map(|turns| turns.iter().map(Sum::mean).collect()).collect());
        }
        Ok(advantages)
    }
}
