//! STAPO's selective term, added on outlier turns only (STAPO, section 4.2, equations 4, 5, 8 and 10).
//!
//! `J_sel = 1 / turns * sum over outlier turns of (alpha R_TA - gamma P_TI)`, where
//! `R_TA = KL[pi(.|c) || pi(.|c masked)]` and `P_TI = KL[pi(.|c masked) || pi_ref(.|c masked)]`, each a mean
//! over the response's tokens, teacher-forced on the same response. `turns` counts every turn of the
//! optimiser batch. The loss is `-J_sel`.
//!
//! The KLs come in as numbers: either full-vocabulary KLs per token, whose derivative the learner
//! carries on through its distributions, or log-probabilities of the sampled tokens, from which they
//! are estimated by k3.
//!
//! Differs from the paper: the tokens are those of the response, which the policy sampled with the whole context, so that k3
//! estimates `R_TA` without bias and `P_TI`, whose tokens would have to be sampled with the masked one, with bias. `estimator = "full"` takes both over
//! the whole distribution at each token.

use serde::{Deserialize, Serialize};
use turnwise_core::{
    ContextMask, MaskedContextGradients, MaskedContextObjective, MaskedContextPass, MaskedContextStatistics,
    ObjectiveError, Passes, Preset, TurnSpan,
};

use crate::{KlEstimator, LossTerm, Minibatch, TermParts, kl_estimate};

/// Estimator of the two KLs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SelectiveEstimator {
    /// Over the full vocabulary, by the learner.
    #[default]
    Full,
    /// From the sampled tokens' log-probabilities.
    K3,
}

/// Guard against hacking of the reward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SelectivePenalty {
    /// `P_TI` on outlier turns.
    #[default]
    Ti,
    /// The global KL penalty alone.
    Single,
    /// The global KL penalty alone, its coefficient raised by gamma.
    Increased,
}

/// The switches of the selective term.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SelectiveConfig {
    /// Weight of the trajectory-aware reward (0.01; search 0.001).
    #[schemars(range(min = 0.0, max = 1000.0))]
    pub alpha: f64,
    /// Weight of the trajectory-independent penalty (0.01; search 0.001).
    #[schemars(range(min = 0.0, max = 1000.0))]
    pub gamma: f64,
    /// Estimator of the two KLs.
    pub estimator: SelectiveEstimator,
    /// Take the distribution after the masked prompt for a constant in `R_TA`.
    pub detach_masked: bool,
    /// Part of the prompt that the masked-context pass hides.
    pub mask: ContextMask,
    /// Guard against hacking of the reward.
    pub penalty: SelectivePenalty,
}

impl Default for SelectiveConfig {
    fn default() -> Self {
        Self {
            alpha: 0.01,
            gamma: 0.01,
            estimator: SelectiveEstimator::Full,
            detach_masked: false,
            mask: ContextMask::GoalAndHistory,
            penalty: SelectivePenalty::Ti,
        }
    }
}

/// STAPO, and STAPO with dynamic sampling and a higher upper clip bound.
pub(crate) const PRESETS: &[Preset] = &[
    Preset::on(
        "gigpo",
        "stapo",
        "credit.outliers = {}\nobjective = { aggregation = \"turn-mean\", kl.coef = 0.01, selective = {} }",
    ),
    Preset::on(
        "stapo",
        "stapo-dynamic",
        "objective.clip = { low = 0.2, high = 0.28 }\nrollout.selection.kind = \"dynamic\"",
    ),
];

impl LossTerm for SelectiveConfig {
    fn kind(&self) -> &'static str {
        "selective"
    }

    fn passes(&self) -> Passes {
        let masked_context = Some(MaskedContextPass {
            mask: self.mask,
            divergences: self.estimator == SelectiveEstimator::Full,
            reference: self.penalty_coef() != 0.0,
        });
        Passes { masked_context, ..Passes::default() }
    }

    fn kl_coef(&self, coef: f64) -> f64 {
        Self::kl_coef(self, coef)
    }

    fn for_minibatch(&self, minibatch: &Minibatch<'_>) -> Result<TermParts, ObjectiveError> {
        if minibatch.masked.is_empty() {
            return Ok(TermParts::default());
        }
        let batch = minibatch.policy.batch();
        let mut all = batch.left_out;
        batch.sequences.iter().for_each(|sequence| all.add(sequence));
        let turns = all.turns;
        let term = SelectiveObjective::for_masked_contexts(self, minibatch.masked, turns)?;
        Ok(TermParts { masked_context: Some(Box::new(term)), ..TermParts::default() })
    }
}

impl SelectiveConfig {
    /// Refuses settings that cannot work.
    ///
    /// # Errors
    /// A coefficient outside of its range.
    pub fn check(&self) -> Result<(), ObjectiveError> {
        turnwise_settings::check(self).map_err(|error| ObjectiveError::Setting(format!("selective: {error}")))
    }

    /// The coefficient of the global KL penalty that belongs to [`SelectiveConfig::penalty`].
    pub fn kl_coef(&self, base: f64) -> f64 {
        if self.penalty == SelectivePenalty::Increased { base + self.gamma } else { base }
    }

    /// The weight of `P_TI` that belongs to [`SelectiveConfig::penalty`].
    pub fn penalty_coef(&self) -> f64 {
        if self.penalty == SelectivePenalty::Ti { self.gamma } else { 0.0 }
    }
}

/// Full-vocabulary KLs at the response tokens of one sequence, in nats.
#[derive(Clone, Copy, Debug)]
pub struct FullKls<'a> {
    /// `KL[pi(.|c) || pi(.|c masked)]`.
    pub kl: &'a [f64],
    /// `KL[pi(.|c masked) || pi_ref(.|c masked)]`.
    pub reference_kl: &'a [f64],
}

/// Log-probabilities of the sampled tokens of one sequence, in nats.
#[derive(Clone, Copy, Debug)]
pub struct MaskedLogprobs<'a> {
    /// Under the policy with the whole prompt.
    pub full: &'a [f64],
    /// Under the policy with the masked prompt.
    pub masked: &'a [f64],
    /// Under the reference policy with the masked prompt.
    pub reference: &'a [f64],
}

/// Loss share of one sequence and its derivatives with respect to the two inputs that carry a gradient.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SelectiveGradient {
    /// The sequence's share of `-J_sel`.
    pub loss: f64,
    /// With respect to `kl` (full KLs) or `full` (log-probabilities).
    pub d_first: Vec<f64>,
    /// With respect to `reference_kl` (full KLs) or `masked` (log-probabilities).
    pub d_second: Vec<f64>,
    /// Sum over outlier turns of the mean `R_TA`.
    pub kl: f64,
    /// Sum over outlier turns of the mean `P_TI`.
    pub reference_kl: f64,
    /// Outlier turns.
    pub outliers: usize,
}

/// The selective term of one optimiser batch.
#[derive(Clone, Debug)]
pub struct SelectiveObjective {
    config: SelectiveConfig,
    /// Spans of every sequence, and whether each is an outlier.
    sequences: Vec<Vec<(TurnSpan, bool)>>,
    turns: f64,
}

impl SelectiveObjective {
    /// The term over a batch: the spans of every sequence and whether each is an outlier turn.
    ///
    /// # Errors
    /// A coefficient outside of its range.
    pub fn new(
        config: &SelectiveConfig,
        sequences: Vec<Vec<(TurnSpan, bool)>>,
    ) -> Result<Self, ObjectiveError> {
        config.check()?;
        let turns = sequences.iter().flatten().filter(|(span, _)| !span.is_empty()).count() as f64;
        Ok(Self { config: config.clone(), sequences, turns })
    }

    /// The term over outlier turns alone, each with its own span as a sequence of one; `turns` counts
    /// every turn of the optimiser batch. This is what a learner evaluates masked_context by masked_context.
    ///
    /// # Errors
    /// A coefficient outside of its range.
    pub fn for_masked_contexts(
        config: &SelectiveConfig,
        spans: &[TurnSpan],
        turns: usize,
    ) -> Result<Self, ObjectiveError> {
        let sequences = spans.iter().map(|&span| vec![(span, true)]).collect();
        Ok(Self { turns: turns as f64, ..Self::new(config, sequences)? })
    }

    /// True if a sequence has an outlier turn: only those need the extra forward passes.
    pub fn needs(&self, sequence: usize) -> bool {
        self.sequences
            .get(sequence)
            .is_some_and(|spans| spans.iter().any(|(span, outlier)| *outlier && !span.is_empty()))
    }

    /// From full-vocabulary KLs. Entries outside of outlier turns are not looked at.
    ///
    /// # Errors
    /// A wrong number of entries, or one that is not finite in an outlier turn.
    pub fn from_kls(&self, sequence: usize, kls: FullKls<'_>) -> Result<SelectiveGradient, ObjectiveError> {
        let FullKls { kl, reference_kl } = kls;
        self.sum_up(sequence, &[("kl", kl), ("reference_kl", reference_kl)], |token| Term {
            kl: (kl[token], 1.0, 0.0),
            reference_kl: (reference_kl[token], 1.0),
        })
    }

    /// From log-probabilities, by k3. Entries outside of outlier turns are not looked at.
    ///
    /// # Errors
    /// A wrong number of entries, or one that is not finite in an outlier turn.
    pub fn from_logprobs(
        &self,
        sequence: usize,
        logprobs: MaskedLogprobs<'_>,
    ) -> Result<SelectiveGradient, ObjectiveError> {
        let MaskedLogprobs { full, masked, reference } = logprobs;
        let arrays = [("full", full), ("masked", masked), ("reference", reference)];
        self.sum_up(sequence, &arrays, |token| {
            // The estimate depends on the difference alone, so the slopes are opposite.
            let (kl, slope) = kl_estimate(KlEstimator::K3, full[token], masked[token]);
            let back = if self.config.detach_masked { 0.0 } else { -slope };
            Term {
                kl: (kl, slope, back),
                reference_kl: kl_estimate(KlEstimator::K3, masked[token], reference[token]),
            }
        })
    }

    fn sum_up(
        &self,
        sequence: usize,
        arrays: &[(&'static str, &[f64])],
        term: impl Fn(usize) -> Term,
    ) -> Result<SelectiveGradient, ObjectiveError> {
        let Some(spans) = self.sequences.get(sequence) else {
            let count = self.sequences.len();
            let text = format!("sequence {sequence} was asked for, the batch has {count}");
            return Err(ObjectiveError::Setting(text));
        };
        let expected = spans.iter().map(|(span, _)| span.len()).sum();
        for &(what, values) in arrays {
            if values.len() != expected {
                return Err(ObjectiveError::Length { sequence, what, found: values.len(), expected });
            }
        }
        let (alpha, gamma) = (self.config.alpha, self.config.penalty_coef());
        let mut gradient = SelectiveGradient {
            d_first: vec![0.0; expected],
            d_second: vec![0.0; expected],
            ..SelectiveGradient::default()
        };
        let mut start = 0;
        for &(span, outlier) in spans {
            let range = start..start + span.len();
            start = range.end;
            if !outlier || range.is_empty() {
                continue;
            }
            gradient.outliers += 1;
            let share = 1.0 / range.len() as f64;
            let weight = share / self.turns;
            for token in range {
                for &(what, values) in arrays {
                    let value = values[token];
                    if !value.is_finite() {
                        return Err(ObjectiveError::NotFinite { sequence, token, what, value });
                    }
                }
                let Term { kl: (kl, slope, back), reference_kl: (reference_kl, pull) } = term(token);
                gradient.loss -= weight * (alpha * kl - gamma * reference_kl);
                gradient.d_first[token] = -weight * alpha * slope;
                gradient.d_second[token] = weight * (gamma * pull - alpha * back);
                gradient.kl += share * kl;
                gradient.reference_kl += share * reference_kl;
            }
        }
        Ok(gradient)
    }
}

/// The two KLs at one token with their slopes.
struct Term {
    /// `R_TA`, its slope in the first input and in the second.
    kl: (f64, f64, f64),
    /// `P_TI` and its slope in the second input.
    reference_kl: (f64, f64),
}

impl MaskedContextObjective for SelectiveObjective {
    fn needs_divergences(&self) -> bool {
        self.config.estimator == SelectiveEstimator::Full
    }

    fn needs_reference(&self) -> bool {
        self.config.penalty_coef() != 0.0
    }

    fn detaches_masked(&self) -> bool {
        self.config.detach_masked
    }

    fn evaluate(
        &self,
        masked_context: usize,
        statistics: MaskedContextStatistics<'_>,
    ) -> Result<MaskedContextGradients, ObjectiveError> {
        let widen = |values: &[f32]| values.iter().copied().map(f64::from).collect::<Vec<_>>();
        let narrow = |values: &[f64]| values.iter().map(|&value| value as f32).collect::<Vec<_>>();
        let found = if self.needs_divergences() {
            let zeros = vec![0.0; statistics.kl.len()];
            let reference_kl = if self.needs_reference() { statistics.reference_kl } else { &zeros };
            self.from_kls(masked_context, FullKls { kl: statistics.kl, reference_kl })?
        } else {
            let (full, masked) = (widen(statistics.full), widen(statistics.masked));
            // Without a penalty the reference has no weight.
            let reference = if self.needs_reference() { widen(statistics.reference) } else { masked.clone() };
            self.from_logprobs(
                masked_context,
                MaskedLogprobs { full: &full, masked: &masked, reference: &reference },
            )?
        };
        let mut gradients = MaskedContextGradients {
            loss: found.loss,
            kl: found.kl,
            reference_kl: found.reference_kl,
            ..MaskedContextGradients::default()
        };
        if self.needs_divergences() {
            gradients.d_kl = found.d_first;
            gradients.d_reference_kl = if self.needs_reference() { found.d_second } else { Vec::new() };
        } else {
            gradients.d_full = narrow(&found.d_first);
            gradients.d_masked = narrow(&found.d_second);
        }
        Ok(gradients)
    }
}
