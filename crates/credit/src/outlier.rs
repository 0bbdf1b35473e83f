//! STAPO's outlier turns, whose entropy is unusual for their state (STAPO, section 3.2, equations 2
//! and 3, algorithm 1).
//!
//! Within each anchor group, `H_n = (Hbar - mean) / (std + eps)`. Outliers are outside
//! `[Q1 - lambda IQR, Q3 + lambda IQR]`, with interpolated quartiles of `H_n` over the batch.
//!
//! Differs from the paper: a turn whose state is visited once keeps its raw entropy, as in the
//! paper's Limitations section; `zero` and `exclude` are alternatives. If the IQR is below 1e-8,
//! rounding errors would decide which turns are outliers, so no turn is an outlier unless
//! `literal` is set.

use serde::{Deserialize, Serialize};
use turnwise_core::{Batch, PerTurn};

use crate::anchor::{AnchorConfig, Anchors};
use crate::entropies::mean_entropies;
use crate::explanation::Explanation;
use crate::registry::in_range;
use crate::statistics::{Moments, Normalize, Singleton, quantile};
use crate::{CreditError, TurnField};

pub(crate) const NAME: &str = "outliers";

const MIN_IQR: f64 = 1e-8;

/// How outlier turns are detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Locate {
    /// Entropy, normalized over the turns in the same anchor state.
    #[default]
    Normalized,
    /// Mean response entropy.
    Shannon,
    /// Every turn is an outlier.
    All,
}

/// Normalized entropy of a turn whose state is visited once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SingletonState {
    /// Raw entropy.
    #[default]
    Raw,
    /// 0.
    Zero,
    /// The turn has no normalized entropy: it is excluded from the quartiles and is never an
    /// outlier.
    Exclude,
}

/// Settings of outlier detection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OutlierConfig {
    /// How outlier turns are detected.
    pub locate: Locate,
    /// Extent of the inlier interval beyond the quartiles, in interquartile ranges.
    #[schemars(range(min = 0.0, max = 1000.0))]
    pub lambda: f64,
    /// Normalized entropy of a turn whose state is visited once.
    pub single_visit_entropy: SingletonState,
    /// Detect outliers even if the interquartile range is nearly 0.
    pub literal: bool,
    /// Degrees of freedom of the standard deviation: 1 (sample) or 0 (population).
    #[schemars(range(max = 1))]
    pub ddof: u8,
    /// Constant added to the standard deviation before dividing by it.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub epsilon: f64,
    /// How anchor states are matched. The default is `credit.estimator.anchor` if the estimator has
    /// one (`gigpo` or `rtmc`), else exact matching.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor: Option<AnchorConfig>,
}

impl Default for OutlierConfig {
    fn default() -> Self {
        Self {
            locate: Locate::Normalized,
            lambda: 1.5,
            single_visit_entropy: SingletonState::Raw,
            literal: false,
            ddof: 1,
            epsilon: 1e-6,
            anchor: None,
        }
    }
}

impl OutlierConfig {
    /// Rejects invalid settings.
    ///
    /// # Errors
    /// The error names the key, its value and the valid range.
    pub fn check(&self) -> Result<(), CreditError> {
        in_range(NAME, self)
    }

    /// Returns the required turn fields.
    pub fn fields(&self) -> Vec<TurnField> {
        match self.locate {
            Locate::All => Vec::new(),
            Locate::Shannon => vec![TurnField::Entropies],
            Locate::Normalized => vec![TurnField::Observation, TurnField::Entropies],
        }
    }
}

/// Outlier turns with scores and bounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outliers {
    /// For each turn, whether it is an outlier.
    pub mask: PerTurn<bool>,
    /// `H_n` (or raw entropy) per turn; `None` if excluded.
    pub scores: PerTurn<Option<f64>>,
    /// Anchor groups of each group of the batch; empty if detection does not use them.
    pub states: Vec<Anchors>,
    /// Inlier interval; `None` for `locate = "all"` or an empty batch.
    pub bounds: Option<(f64, f64)>,
    /// Whether the interval was too narrow to use, so that no turn is an outlier.
    pub degenerate: bool,
    /// Number of unusually certain turns (below the interval).
    pub low: usize,
    /// Number of unusually uncertain turns (above the interval).
    pub high: usize,
}

impl Outliers {
    pub(crate) fn record(&self, batch: &Batch, explanation: &mut Explanation) {
        for (group, (mask, scores)) in self.mask.groups().zip(self.scores.groups()).enumerate() {
            let trajectories = &batch.groups[group].trajectories;
            let states = self.states.get(group).map(|anchors| (anchors, anchors.sizes()));
            explanation.facts(group, mask, |trajectory, turn, &outlier| {
                let mut facts = vec![("outlier", f64::from(u8::from(outlier)))];
                let entropy = trajectories[trajectory].turns[turn].mean_entropy();
                facts.extend(entropy.map(|entropy| ("entropy", entropy)));
                facts.extend(scores[trajectory][turn].map(|score| ("entropy_normalised", score)));
                facts.extend(self.bounds.iter().flat_map(|&(low, high)| [("low", low), ("high", high)]));
                if let Some((anchors, sizes)) = &states {
                    let anchor = anchors.of[trajectory][turn];
                    facts.extend([("anchor", anchor as f64), ("anchor_size", sizes[anchor] as f64)]);
                }
                facts
            });
        }
        let turns = self.mask.rows().map(<[bool]>::len).sum::<usize>().max(1) as f64;
        let outliers = self.mask.values().filter(|&&outlier| outlier).count() as f64;
        explanation.diagnostic("outliers/share", outliers / turns);
        explanation.diagnostic("outliers/low", self.low as f64 / turns);
        explanation.diagnostic("outliers/high", self.high as f64 / turns);
        explanation.diagnostic("outliers/degenerate", f64::from(u8::from(self.degenerate)));
    }
}

/// Finds a batch's outlier turns.
///
/// # Errors
/// Fails on invalid settings or, unless `locate = "all"`, missing token entropies.
pub fn locate(batch: &Batch, config: &OutlierConfig) -> Result<Outliers, CreditError> {
    config.check()?;
    let anchor = config.anchor.clone().unwrap_or_default();
    if config.locate == Locate::All {
        let scores = PerTurn::filled(batch, None);
        return Ok(Outliers { mask: PerTurn::filled(batch, true), scores, ..Outliers::default() });
    }
    let states = match config.locate {
        Locate::Normalized => Anchors::find_all(batch, &anchor),
        Locate::Shannon | Locate::All => Vec::new(),
    };
    let scores = scores(batch, &states, config)?;
    let mut sorted: Vec<f64> = scores.values().copied().flatten().collect();
    sorted.sort_by(f64::total_cmp);
    let (Some(q1), Some(q3)) = (quantile(&sorted, 0.25), quantile(&sorted, 0.75)) else {
        return Ok(Outliers { mask: PerTurn::filled(batch, false), scores, states, ..Outliers::default() });
    };
    let range = q3 - q1;
    let (low, high) = (q1 - config.lambda * range, q3 + config.lambda * range);
    let degenerate = range < MIN_IQR && !config.literal;
    let outside = |score: &Option<f64>| !degenerate && score.is_some_and(|score| score < low || score > high);
    let mask = scores.map(outside);
    let count = |wanted: &dyn Fn(f64) -> bool| {
        if degenerate { 0 } else { sorted.iter().filter(|&&score| wanted(score)).count() }
    };
    let (below, above) = (count(&|score| score < low), count(&|score| score > high));
    let bounds = Some((low, high));
    Ok(Outliers { mask, scores, states, bounds, degenerate, low: below, high: above })
}

fn scores(
    batch: &Batch,
    states: &[Anchors],
    config: &OutlierConfig,
) -> Result<PerTurn<Option<f64>>, CreditError> {
    let entropies = mean_entropies(NAME, batch)?;
    let mut scores = PerTurn::default();
    for (index, entropies) in entropies.groups().enumerate() {
        if config.locate == Locate::Shannon {
            scores.push(entropies.iter().map(|row| row.iter().copied().map(Some).collect()).collect());
            continue;
        }
        let anchors = &states[index];
        let moments: Vec<Moments> =
            anchors.gather(entropies).iter().map(|values| Moments::of(values, config.ddof)).collect();
        let score = |entropy: f64, state: &Moments| match (state.count, config.single_visit_entropy) {
            (1, SingletonState::Raw) => Some(entropy),
            (1, SingletonState::Zero) => Some(0.0),
            (1, SingletonState::Exclude) => None,
            _ => Some(state.standardise(entropy, Normalize::MeanStd, config.epsilon, Singleton::Zero)),
        };
        scores.push(
            entropies
                .iter()
                .zip(&anchors.of)
                .map(|(row, of)| row.iter().zip(of).map(|(&h, &state)| score(h, &moments[state])).collect())
                .collect(),
        );
    }
    Ok(scores)
}
