//! STAPO's selective term on outlier turns (STAPO, section 4.2, equations 4, 5, 8 and 10).
//!
//! `J_sel = 1 / turns * sum over outlier turns of (alpha R_TA - gamma P_TI)`, with
//! `R_TA = KL[pi(.|c) || pi(.|c masked)]` and `P_TI = KL[pi(.|c masked) || pi_ref(.|c masked)]`,
//! each a mean over the tokens of the same response. `turns` counts all turns of the optimizer
//! batch. The loss is `-J_sel`.
//!
//! Inputs are full-vocabulary KLs per token, or log-probs of the sampled tokens for k3.
//!
//! Differs from the paper: tokens come from the response sampled with the full context, so k3 is
//! biased for `P_TI`. `estimator = "full"` is exact at each token.

use serde::{Deserialize, Serialize};
use turnwise_core::{
    ContextMask, MaskedContextGradients, MaskedContextPass, MaskedContextStatistics, Objective,
    ObjectiveError, Preset, RequiredPasses, TokenGradients, TokenStatistics, TurnSpan,
};

use crate::{KlEstimator, LossTerm, Minibatch, TermObjective, kl_estimate};

/// Estimator of the two KLs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SelectiveEstimator {
    /// Exact KLs over the full vocabulary, computed by the learner.
    #[default]
    Full,
    /// k3 from log-probs of sampled tokens.
    K3,
}

/// Penalty against reward hacking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SelectivePenalty {
    /// `P_TI` on outlier turns.
    #[default]
    Ti,
    /// No `P_TI`; only the policy loss's own KL penalty (the global one) applies.
    Single,
    /// No `P_TI`, but gamma is added to the coefficient of the global KL penalty.
    Increased,
}

/// Settings of the selective term.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SelectiveConfig {
    /// Weight of `R_TA`, the trajectory-aware reward (0.01, or 0.001 for search).
    #[schemars(range(min = 0.0, max = 1000.0))]
    pub alpha: f64,
    /// Weight of `P_TI`, the trajectory-independent penalty (0.01, or 0.001 for search).
    #[schemars(range(min = 0.0, max = 1000.0))]
    pub gamma: f64,
    /// Estimator of the two KLs.
    pub estimator: SelectiveEstimator,
    /// Treat the masked prompt's distribution as constant in `R_TA`.
    pub detach_masked: bool,
    /// Hidden part of the prompt in the masked-context pass.
    pub mask: ContextMask,
    /// Penalty against reward hacking.
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
        "credit.outliers = {}\nobjective = { loss_agg_mode = \"turn-mean\", kl.coef = 0.01, selective = {} }",
    ),
    Preset::on(
        "stapo",
        "stapo-dynamic",
        "objective.clip = { low = 0.2, high = 0.28 }\nrollout.filter_groups.kind = \"dynamic\"",
    ),
];

impl LossTerm for SelectiveConfig {
    fn kind(&self) -> &'static str {
        "selective"
    }

    fn passes(&self) -> RequiredPasses {
        RequiredPasses { masked_context: Some(self.pass()), ..RequiredPasses::default() }
    }

    fn kl_coef(&self, coef: f64) -> f64 {
        Self::kl_coef(self, coef)
    }

    fn for_minibatch(&self, minibatch: &Minibatch<'_>) -> Result<TermObjective, ObjectiveError> {
        let batch = minibatch.policy.batch();
        let mut all = batch.left_out;
        batch.sequences.iter().for_each(|sequence| all.add(sequence));
        let turns = all.turns;
        Ok(Box::new(SelectiveObjective::for_masked_contexts(self, minibatch.masked, turns)?))
    }
}

impl SelectiveConfig {
    /// Rejects invalid settings.
    ///
    /// # Errors
    /// Fails on a coefficient out of range.
    pub fn check(&self) -> Result<(), ObjectiveError> {
        turnwise_settings::check(self).map_err(|error| ObjectiveError::Setting(format!("selective: {error}")))
    }

    fn pass(&self) -> MaskedContextPass {
        MaskedContextPass {
            mask: self.mask,
            divergences: self.estimator == SelectiveEstimator::Full,
            reference: self.penalty_coef() != 0.0,
            detached: self.detach_masked,
        }
    }

    /// Returns the coefficient of the global KL penalty, given its configured value `base`.
    pub fn kl_coef(&self, base: f64) -> f64 {
        if self.penalty == SelectivePenalty::Increased { base + self.gamma } else { base }
    }

    /// Returns the weight of `P_TI`; 0 if another penalty is configured.
    pub fn penalty_coef(&self) -> f64 {
        if self.penalty == SelectivePenalty::Ti { self.gamma } else { 0.0 }
    }
}

/// Full-vocabulary KLs at one sequence's response tokens, in nats.
#[derive(Clone, Copy, Debug)]
pub struct FullKls<'a> {
    /// `KL[pi(.|c) || pi(.|c masked)]`.
    pub kl: &'a [f64],
    /// `KL[pi(.|c masked) || pi_ref(.|c masked)]`.
    pub reference_kl: &'a [f64],
}

/// Log-probs of one sequence's sampled tokens, in nats.
#[derive(Clone, Copy, Debug)]
pub struct MaskedLogprobs<'a> {
    /// Log-probs under the policy after the whole prompt.
    pub full: &'a [f64],
    /// Log-probs under the policy after the masked prompt.
    pub masked: &'a [f64],
    /// Log-probs under the reference policy after the masked prompt.
    pub reference: &'a [f64],
}

/// One sequence's loss and derivatives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SelectiveGradient {
    /// The sequence's part of `-J_sel`.
    pub loss: f64,
    /// Derivative with respect to the first input: `kl` if computed from full KLs, `full` if
    /// computed from log-probs.
    pub d_first: Vec<f64>,
    /// Derivative with respect to the second input: `reference_kl` if computed from full KLs,
    /// `masked` if computed from log-probs.
    pub d_second: Vec<f64>,
    /// Sum of `R_TA` over outlier turns.
    pub kl: f64,
    /// Sum of `P_TI` over outlier turns.
    pub reference_kl: f64,
    /// Number of outlier turns.
    pub outliers: usize,
}

/// Selective term of one optimizer batch.
#[derive(Clone, Debug)]
pub struct SelectiveObjective {
    config: SelectiveConfig,
    /// Spans of each sequence's turns, each with whether its turn is an outlier.
    sequences: Vec<Vec<(TurnSpan, bool)>>,
    turns: f64,
}

impl SelectiveObjective {
    /// Creates the term over a batch, from the spans of each sequence and whether each span is an
    /// outlier turn.
    ///
    /// # Errors
    /// Fails on a coefficient out of range.
    pub fn new(
        config: &SelectiveConfig,
        sequences: Vec<Vec<(TurnSpan, bool)>>,
    ) -> Result<Self, ObjectiveError> {
        config.check()?;
        let turns = sequences.iter().flatten().filter(|(span, _)| !span.is_empty()).count() as f64;
        Ok(Self { config: config.clone(), sequences, turns })
    }

    /// Creates the term over outlier turns, each given as a sequence with one span. `turns` is the
    /// number of all turns in the optimizer batch.
    ///
    /// # Errors
    /// Fails on a coefficient out of range.
    pub fn for_masked_contexts(
        config: &SelectiveConfig,
        spans: &[TurnSpan],
        turns: usize,
    ) -> Result<Self, ObjectiveError> {
        let sequences = spans.iter().map(|&span| vec![(span, true)]).collect();
        Ok(Self { turns: turns as f64, ..Self::new(config, sequences)? })
    }

    /// Returns whether a sequence has an outlier turn.
    pub fn needs(&self, sequence: usize) -> bool {
        self.sequences
            .get(sequence)
            .is_some_and(|spans| spans.iter().any(|(span, outlier)| *outlier && !span.is_empty()))
    }

    /// Evaluates one sequence from full-vocabulary KLs; entries outside outlier turns are ignored.
    ///
    /// # Errors
    /// Fails on a wrong number of entries, and on NaN or infinity in an outlier turn.
    pub fn from_kls(&self, sequence: usize, kls: FullKls<'_>) -> Result<SelectiveGradient, ObjectiveError> {
        let FullKls { kl, reference_kl } = kls;
        self.sum_up(sequence, &[("kl", kl), ("reference_kl", reference_kl)], |token| Term {
            kl: (kl[token], 1.0, 0.0),
            reference_kl: (reference_kl[token], 1.0),
        })
    }

    /// Evaluates one sequence from log-probs with k3; entries outside outlier turns are ignored.
    ///
    /// # Errors
    /// Fails like [`SelectiveObjective::from_kls`].
    pub fn from_logprobs(
        &self,
        sequence: usize,
        logprobs: MaskedLogprobs<'_>,
    ) -> Result<SelectiveGradient, ObjectiveError> {
        let MaskedLogprobs { full, masked, reference } = logprobs;
        let arrays = [("full", full), ("masked", masked), ("reference", reference)];
        self.sum_up(sequence, &arrays, |token| {
            // The estimate depends only on the difference.
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

struct Term {
    /// `R_TA` and its derivatives w.r.t. the two inputs.
    kl: (f64, f64, f64),
    /// `P_TI` and its derivative w.r.t. the second input.
    reference_kl: (f64, f64),
}

impl Objective for SelectiveObjective {
    /// Returns zeros, because the term's loss comes only from masked contexts.
    fn evaluate(&self, _: usize, _: TokenStatistics<'_>) -> Result<TokenGradients, ObjectiveError> {
        Ok(TokenGradients::default())
    }

    fn evaluate_masked_context(
        &self,
        masked_context: usize,
        statistics: MaskedContextStatistics<'_>,
    ) -> Result<MaskedContextGradients, ObjectiveError> {
        let widen = |values: &[f32]| values.iter().copied().map(f64::from).collect::<Vec<_>>();
        let narrow = |values: &[f64]| values.iter().map(|&value| value as f32).collect::<Vec<_>>();
        let MaskedContextPass { divergences, reference: with_reference, .. } = self.config.pass();
        let found = if divergences {
            let zeros = vec![0.0; statistics.kl.len()];
            let reference_kl = if with_reference { statistics.reference_kl } else { &zeros };
            self.from_kls(masked_context, FullKls { kl: statistics.kl, reference_kl })?
        } else {
            let (full, masked) = (widen(statistics.full), widen(statistics.masked));
            // Without a penalty the reference has weight 0.
            let reference = if with_reference { widen(statistics.reference) } else { masked.clone() };
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
        if divergences {
            gradients.d_kl = found.d_first;
            gradients.d_reference_kl = if with_reference { found.d_second } else { Vec::new() };
        } else {
            gradients.d_full = narrow(&found.d_first);
            gradients.d_masked = narrow(&found.d_second);
        }
        Ok(gradients)
    }
}
