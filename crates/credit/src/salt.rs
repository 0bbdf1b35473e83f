//! SALT: turns on the same edge of the group's trajectory graph share the mean of their advantages
//! (SALT, "Step-level Advantage Assignment for Long-horizon Agents via Trajectory Graph", 2025).
//!
//! The state before turn t is the last `h` (action, observation) pairs (fewer at the start) up to
//! the current observation. An edge is (state_t, action_t, state_{t+1}) with the parsed action; the
//! state after the last turn is marked as terminal.
//!
//! Differs from the paper: an edge taken twice by one trajectory counts twice unless
//! `count = "trajectories"`. Free-text observations, and actions if `actions = "embedding"`, join
//! the cluster whose first member has the most similar embedding, if that similarity is above the
//! threshold.

use serde::{Deserialize, Serialize};
use turnwise_core::{Group, PerTurn, Preset, Trajectory};

use crate::hashing::FastMap;
use crate::registry::{MethodSettings, in_range};
use crate::statistics::Moments;
use crate::{CreditError, CreditInputs, Embedder, Explanation, Refinement, RequiredInputs, TurnField};

const NAME: &str = "salt";

const SETTINGS: &str = "credit.refinements = [{ kind = \"salt\" }]\nobjective.kl.coef = 0.01";

/// When two observations or actions count as equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SaltMatching {
    /// Equal texts.
    #[default]
    Exact,
    /// Embeddings whose cosine similarity is above the threshold. They come from `credit.encoder`,
    /// or are hashed character n-grams by default.
    Embedding,
}

/// What an edge's advantage is averaged over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SaltCount {
    /// The turns on the edge, each counted once.
    #[default]
    Occurrences,
    /// The trajectories on the edge, each counted once with the mean of its turns there.
    Trajectories,
}

/// Settings of SALT.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SaltConfig {
    /// Number of (action, observation) pairs in a state; `h` in the paper.
    #[schemars(range(min = 1, max = 1000))]
    pub history: usize,
    /// When two observations count as equal.
    pub matching: SaltMatching,
    /// When two actions count as equal; `embedding` needs `matching = "embedding"`.
    pub actions: SaltMatching,
    /// Threshold that the cosine similarity of two texts must exceed for them to match.
    #[schemars(range(min = -1.0, max = 1.0))]
    pub threshold: f64,
    /// What an edge's advantage is averaged over.
    pub count: SaltCount,
}

impl Default for SaltConfig {
    fn default() -> Self {
        Self {
            history: 3,
            matching: SaltMatching::Exact,
            actions: SaltMatching::Exact,
            threshold: 0.8,
            count: SaltCount::Occurrences,
        }
    }
}

impl MethodSettings for SaltConfig {
    const KIND: &'static str = NAME;
    const PRESETS: &'static [Preset] = &[
        Preset::on("grpo", "salt-grpo", SETTINGS),
        Preset::on("rloo", "salt-rloo", SETTINGS),
        Preset::on("dapo", "salt-dapo", SETTINGS),
        Preset::on("gspo", "salt-gspo", SETTINGS),
    ];
    type Method = Salt;

    fn build(self) -> Result<Salt, CreditError> {
        Salt::new(self)
    }
}

/// The SALT refinement.
#[derive(Clone, Debug)]
pub struct Salt {
    config: SaltConfig,
}

/// (trajectory, turn) pairs on one edge.
type Edge = Vec<(usize, usize)>;

impl Salt {
    /// Creates SALT.
    ///
    /// # Errors
    /// Fails on an empty history or an invalid threshold, or if actions are matched by embedding
    /// but observations exactly.
    pub fn new(config: SaltConfig) -> Result<Self, CreditError> {
        in_range(NAME, &config)?;
        if config.actions == SaltMatching::Embedding && config.matching == SaltMatching::Exact {
            let reason =
                "actions = \"embedding\" goes with matching = \"embedding\"; set both, or leave actions out";
            return Err(CreditError::Setting { method: NAME, reason: reason.into() });
        }
        Ok(Self { config })
    }

    fn texts<'e, 'a>(
        &self,
        rule: SaltMatching,
        inputs: &CreditInputs<'e>,
    ) -> Result<Texts<'e, 'a>, CreditError> {
        match (rule, inputs.embedder) {
            (SaltMatching::Exact, _) => Ok(Texts::Exact(FastMap::default())),
            (SaltMatching::Embedding, Some(embedder)) => Ok(Texts::Embedded {
                embedder,
                threshold: self.config.threshold,
                ids: FastMap::default(),
                centres: Vec::new(),
            }),
            (SaltMatching::Embedding, None) => {
                let reason =
                    "matching = \"embedding\" needs an embedder; use matching = \"exact\" or give one";
                Err(CreditError::Setting { method: NAME, reason: reason.into() })
            }
        }
    }

    /// Returns a group's edges in order of first appearance.
    ///
    /// # Errors
    /// Fails if a required embedder is missing.
    pub fn edges(&self, inputs: &CreditInputs<'_>, group: &Group) -> Result<Vec<Edge>, CreditError> {
        let mut observations = self.texts(self.config.matching, inputs)?;
        let mut actions = self.texts(self.config.actions, inputs)?;
        let mut states: FastMap<Vec<u32>, u32> = FastMap::default();
        let mut numbers: FastMap<(u32, u32, u32), usize> = FastMap::default();
        let mut edges: Vec<Edge> = Vec::new();
        let mut key: Vec<u32> = Vec::new();
        for (index, trajectory) in group.trajectories.iter().enumerate() {
            let symbols = symbols(trajectory, &mut observations, &mut actions);
            let last = trajectory.turns.len();
            let mut state = |end: usize| {
                let start = end.saturating_sub(self.config.history);
                key.clear();
                key.extend(
                    symbols[start..end].iter().flat_map(|&(action, observation)| [action, observation]),
                );
                key.push(u32::from(end > last));
                let next = states.len() as u32;
                if let Some(&number) = states.get(key.as_slice()) {
                    return number;
                }
                states.insert(key.clone(), next);
                next
            };
            let mut before = if last > 0 { state(1) } else { 0 };
            for turn in 0..last {
                let after = state(turn + 2);
                let number = *numbers.entry((before, symbols[turn + 1].0, after)).or_insert_with(|| {
                    edges.push(Vec::new());
                    edges.len() - 1
                });
                edges[number].push((index, turn));
                before = after;
            }
        }
        Ok(edges)
    }

    fn mean(&self, edge: &Edge, advantages: &[Vec<f64>]) -> f64 {
        let values = |edge: &[(usize, usize)]| -> Vec<f64> {
            edge.iter().map(|&(trajectory, turn)| advantages[trajectory][turn]).collect()
        };
        match self.config.count {
            SaltCount::Occurrences => Moments::of(&values(edge), 0).mean,
            SaltCount::Trajectories => {
                // Pairs are sorted by trajectory.
                let means: Vec<f64> = edge
                    .chunk_by(|a, b| a.0 == b.0)
                    .map(|indices| Moments::of(&values(indices), 0).mean)
                    .collect();
                Moments::of(&means, 0).mean
            }
        }
    }
}

enum Texts<'e, 'a> {
    Exact(FastMap<&'a str, u32>),
    Embedded {
        embedder: &'e dyn Embedder,
        threshold: f64,
        ids: FastMap<&'a str, u32>,
        /// L2-normalized embedding of each cluster's first text.
        centres: Vec<Vec<f64>>,
    },
}

impl<'a> Texts<'_, 'a> {
    fn id(&mut self, text: &'a str) -> u32 {
        match self {
            Self::Exact(ids) => {
                let next = ids.len() as u32;
                *ids.entry(text).or_insert(next)
            }
            Self::Embedded { embedder, threshold, ids, centres } => *ids.entry(text).or_insert_with(|| {
                let unit = unit(embedder.embed(text));
                let mut best: Option<(usize, f64)> = None;
                for (index, centre) in centres.iter().enumerate() {
                    let cosine: f64 = centre.iter().zip(&unit).map(|(a, b)| a * b).sum();
                    if cosine > best.map_or(*threshold, |(_, cosine)| cosine) {
                        best = Some((index, cosine));
                    }
                }
                let number = best.map_or(centres.len(), |(index, _)| index);
                if best.is_none() {
                    centres.push(unit);
                }
                number as u32
            }),
        }
    }
}

/// Returns (previous action, observation) for each state, including the final one; action 0 means
/// that no action precedes the state.
fn symbols<'a>(
    trajectory: &'a Trajectory,
    observations: &mut Texts<'_, 'a>,
    actions: &mut Texts<'_, 'a>,
) -> Vec<(u32, u32)> {
    let mut before = 0;
    let mut symbols = Vec::with_capacity(trajectory.turns.len() + 1);
    for turn in &trajectory.turns {
        symbols.push((before, observations.id(turn.state_key())));
        before = actions.id(&turn.action) + 1;
    }
    symbols.push((before, observations.id(trajectory.final_state_key())));
    symbols
}

/// Normalizes a vector to length 1. A zero vector stays zero, so its cosine with all others is 0.
fn unit(vector: Vec<f32>) -> Vec<f64> {
    let vector: Vec<f64> = vector.into_iter().map(f64::from).collect();
    let length = vector.iter().map(|value| value * value).sum::<f64>().sqrt();
    vector.into_iter().map(|value| if length > 0.0 { value / length } else { 0.0 }).collect()
}

impl Refinement for Salt {
    fn name(&self) -> &'static str {
        NAME
    }

    fn required_inputs(&self) -> RequiredInputs {
        RequiredInputs {
            embeddings: self.config.matching == SaltMatching::Embedding,
            ..RequiredInputs::default()
        }
    }

    fn fields(&self) -> Vec<TurnField> {
        vec![TurnField::Observation, TurnField::Action]
    }

    fn refine(
        &self,
        inputs: &CreditInputs<'_>,
        advantages: &mut PerTurn<f64>,
        explanation: &mut Explanation,
    ) -> Result<(), CreditError> {
        let (mut turns, mut merged, mut edges_merged, mut conflicts) = (0, 0, 0, 0);
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for (index, group) in inputs.batch.groups.iter().enumerate() {
            let edges = self.edges(inputs, group)?;
            let values = &mut advantages[index];
            let mut facts: Vec<Vec<(usize, usize, f64)>> = Vec::new();
            if explanation.is_on() {
                facts = values.iter().map(|row| row.iter().map(|&value| (0, 0, value)).collect()).collect();
            }
            for (number, edge) in edges.iter().enumerate() {
                turns += edge.len();
                if explanation.is_on() {
                    for &(trajectory, turn) in edge {
                        let fact = &mut facts[trajectory][turn];
                        (fact.0, fact.1) = (number, edge.len());
                    }
                }
                if edge.len() < 2 {
                    continue;
                }
                let mean = self.mean(edge, values);
                merged += edge.len();
                edges_merged += 1;
                let old: Vec<f64> = edge.iter().map(|&(trajectory, turn)| values[trajectory][turn]).collect();
                conflicts +=
                    usize::from(old.iter().any(|&value| value > 0.0) && old.iter().any(|&value| value < 0.0));
                before.extend(old);
                after.extend(std::iter::repeat_n(mean, edge.len()));
                for &(trajectory, turn) in edge {
                    values[trajectory][turn] = mean;
                }
            }
            explanation.facts(index, &facts, |_, _, &(edge, size, before)| {
                vec![("edge", edge as f64), ("edge_size", size as f64), ("before", before)]
            });
        }
        let share = |part: usize, whole: usize| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        explanation.diagnostic("salt/merge_rate", share(merged, turns));
        explanation.diagnostic("salt/sign_conflicts", share(conflicts, edges_merged));
        explanation.diagnostic("salt/variance_before", Moments::of(&before, 0).std.powi(2));
        explanation.diagnostic("salt/variance_after", Moments::of(&after, 0).std.powi(2));
        Ok(())
    }
}
