//! SORL's clipping-triggered normalization: the gradient divided by `max(||C||_2, delta)` (SORL,
//! equations 8, 9 and 12).
//!
//! C comes from the clipped tokens of the same mini-batch. Its entries are
//! `1 / (B |y|) 1[clipped] w_t A_t`; which norm is meant is a switch:
//! * `parameter`: C is the gradient of the clipped tokens' unclipped surrogate with respect to the
//!   weights (the paper's proof A.3 and its figure 4). [`ClippingBias::d_logprobs`] is what the learner
//!   runs backward from, in one extra pass over the sequences with clipped tokens;
//! * `token`: the L2 norm over the entries;
//! * `scalar`: the absolute value of their sum.
//!
//! Differs from the paper: its equation 8 has no gradient in it and is a number, its proof and figure
//! use the gradient; hence the switch. With turn or sequence ratios the gradient runs through the
//! ratio, as it does in the objective. The factor is on the whole gradient of the mini-batch, with those of a KL term in the loss, an
//! entropy bonus and a selective term; equations 12 and 15 have the surrogate alone. Where a KL term is to be left as it is,
//! `objective.kl.where = "reward"` makes it part of the advantages, which may be what appendix A.4 means by the conventions of PPO; both
//! presets have it in the loss, as GRPO does, so that `so-ppo` and `so-grpo` differ by their credit and ratio alone.

use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use turnwise_core::{
    GradientScale, GradientScaling, Objective, ObjectiveError, Passes, Preset, SecondPass, TokenGradients,
    TokenStatistics,
};

use crate::{LossTerm, Minibatch, ObservedScaling, PolicyObjective, TermParts};

/// Norm of the clipping bias that divides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BiasNorm {
    /// Of its gradient with respect to the weights.
    #[default]
    Parameter,
    /// Of its per-token entries.
    Token,
    /// The absolute value of its sum.
    Scalar,
}

/// The switches of the normalization.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NormalizationConfig {
    /// Norm of the clipping bias that divides.
    pub norm: BiasNorm,
    /// The least that is divided by.
    #[schemars(range(max = 1e9), extend("exclusiveMinimum" = 0.0))]
    pub delta: f64,
    /// Measure the norm (`normalization/bias_norm`) and leave the gradient as it is: the curve of SORL's figure 4 for a method that
    /// does not divide. It costs the same passes.
    pub measure_only: bool,
}

impl Default for NormalizationConfig {
    fn default() -> Self {
        Self { norm: BiasNorm::Parameter, delta: 1.0, measure_only: false }
    }
}

impl NormalizationConfig {
    /// Factor on the gradient: `1 / max(norm, delta)`, and 1 where the norm is only measured.
    ///
    /// # Errors
    /// A delta that is not positive, or a norm that is not a number.
    pub fn factor(&self, norm: f64) -> Result<f64, ObjectiveError> {
        if !(self.delta > 0.0 && self.delta.is_finite()) {
            let text = format!("normalization.delta is {}; it must be above 0", self.delta);
            return Err(ObjectiveError::Setting(text));
        }
        if norm.is_nan() {
            return Err(ObjectiveError::Setting("the norm of the clipping bias is not a number".into()));
        }
        Ok(if self.measure_only { 1.0 } else { 1.0 / norm.max(self.delta) })
    }
}

/// SORL's two methods: the turn ratio on PPO, the token ratio on GRPO, both with this normalization. A batch is cut into two
/// mini-batches (appendix A.4: 512 and 256), so that the second is off-policy, and used once: appendix A.5 counts one on-policy and three
/// off-policy updates a batch in quarters. Its "150th optimization step (2 epochs)" fits updates by mini-batches of 256 on `AlphaMed19K`
/// (150 x 256 trajectories are two for each of its 19,000 questions), so that its "4 epochs" are passes over the questions.
pub(crate) const PRESETS: &[Preset] = &[
    Preset::on(
        "ppo",
        "so-ppo",
        "credit.estimator.invalid_penalty = 0.0\n[objective]\nratio = \"turn\"\naggregation = \"seq-mean-token-mean\"\nkl.coef = 0.001\nnormalization = {}\n\
         [train]\nnum_minibatches = 2",
    ),
    Preset::on(
        "grpo",
        "so-grpo",
        "credit.estimator.invalid_penalty = 0.0\n[objective]\nratio = \"token\"\naggregation = \"seq-mean-token-mean\"\nkl.coef = 0.001\nnormalization = {}\n\
         [train]\nnum_minibatches = 2",
    ),
];

impl LossTerm for NormalizationConfig {
    fn kind(&self) -> &'static str {
        "normalization"
    }

    fn passes(&self) -> Passes {
        Passes { bias_gradient: self.norm == BiasNorm::Parameter, ..Passes::default() }
    }

    fn scales_gradient(&self) -> bool {
        true
    }

    fn for_minibatch(&self, minibatch: &Minibatch<'_>) -> Result<TermParts, ObjectiveError> {
        let policy = Arc::clone(minibatch.policy);
        let scaling = ClippingScale { config: self.clone(), policy, found: Mutex::new(Vec::new()) };
        Ok(TermParts { scaling: Some(Box::new(scaling)), ..TermParts::default() })
    }
}

/// The normalization of one optimiser batch: it notes the clipping bias of every sequence while the
/// gradient is made.
#[derive(Debug)]
struct ClippingScale {
    config: NormalizationConfig,
    policy: Arc<PolicyObjective>,
    found: Mutex<Vec<(usize, BiasSum)>>,
}

impl ClippingScale {
    /// The sum over sequences, in their order, and the sequences that have clipped tokens.
    fn found(&self) -> (BiasSum, Vec<usize>) {
        ClippingRecorder::sum_up(self.found.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl ObservedScaling for ClippingScale {
    fn observe(&self, sequence: usize, tokens: TokenStatistics<'_>) -> Result<(), ObjectiveError> {
        let logprobs: Vec<f64> = tokens.logprobs.iter().copied().map(f64::from).collect();
        let bias = BiasSum::of(&self.policy.clipping_bias(sequence, &logprobs)?);
        self.found.lock().unwrap_or_else(PoisonError::into_inner).push((sequence, bias));
        Ok(())
    }
}

impl GradientScaling for ClippingScale {
    fn second_pass(&self) -> Result<Option<SecondPass<'_>>, ObjectiveError> {
        let (_, clipped) = self.found();
        if self.config.norm != BiasNorm::Parameter || clipped.is_empty() {
            return Ok(None);
        }
        let objective = Box::new(BiasOf { policy: &self.policy, sequences: clipped.clone() });
        Ok(Some(SecondPass { sequences: clipped, objective }))
    }

    fn scale(&self, second_norm: Option<f64>) -> Result<GradientScale, ObjectiveError> {
        let (sum, _) = self.found();
        let norm = match self.config.norm {
            BiasNorm::Parameter => second_norm.unwrap_or(0.0),
            BiasNorm::Token => sum.token_norm(),
            BiasNorm::Scalar => sum.scalar_norm(),
        };
        let factor = self.config.factor(norm)?;
        let metrics = vec![("normalization/bias_norm".into(), norm), ("normalization/factor".into(), factor)];
        Ok(GradientScale { factor, metrics })
    }
}

/// The clipping bias of some sequences of a batch.
struct BiasOf<'a> {
    policy: &'a PolicyObjective,
    sequences: Vec<usize>,
}

impl Objective for BiasOf<'_> {
    fn evaluate(
        &self,
        sequence: usize,
        tokens: TokenStatistics<'_>,
    ) -> Result<TokenGradients, ObjectiveError> {
        let bias = BiasObjective(self.policy);
        Subset { inner: &bias, indices: &self.sequences }.evaluate(sequence, tokens)
    }
}

/// The clipping bias of one sequence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClippingBias {
    /// Its entry at every response token, 0 where the token is not clipped.
    pub entries: Vec<f64>,
    /// The derivative of the sum of entries with respect to every log-probability, which tokens are
    /// clipped held fixed.
    pub d_logprobs: Vec<f64>,
    /// Clipped tokens.
    pub clipped: usize,
}

/// Sums clipping biases up to the norms that need no pass through the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BiasSum {
    squares: f64,
    sum: f64,
    /// Clipped tokens so far.
    pub clipped: usize,
}

impl BiasSum {
    /// That of one sequence.
    pub fn of(bias: &ClippingBias) -> Self {
        Self {
            squares: bias.entries.iter().map(|entry| entry * entry).sum(),
            sum: bias.entries.iter().sum(),
            clipped: bias.clipped,
        }
    }

    /// Adds a sequence.
    pub fn add(&mut self, bias: &ClippingBias) {
        self.join(&Self::of(bias));
    }

    /// Adds what another sum has.
    pub fn join(&mut self, other: &Self) {
        self.squares += other.squares;
        self.sum += other.sum;
        self.clipped += other.clipped;
    }

    /// L2 norm over the entries.
    pub fn token_norm(&self) -> f64 {
        self.squares.sqrt()
    }

    /// Absolute value of the sum.
    pub fn scalar_norm(&self) -> f64 {
        self.sum.abs()
    }
}

/// A policy objective that notes the clipping bias of every sequence it is asked for, so that the norm
/// is known after the pass that makes the gradient.
#[derive(Debug)]
pub struct ClippingRecorder<'a> {
    policy: &'a PolicyObjective,
    found: Mutex<Vec<(usize, BiasSum)>>,
}

impl<'a> ClippingRecorder<'a> {
    /// A recorder of what `policy` clips.
    pub fn new(policy: &'a PolicyObjective) -> Self {
        Self { policy, found: Mutex::new(Vec::new()) }
    }

    /// The sum over sequences, in their order, and the sequences that have clipped tokens.
    pub fn finish(self) -> (BiasSum, Vec<usize>) {
        Self::sum_up(self.into_parts())
    }

    /// The sums by sequence, in no order: as the lanes came to them.
    pub fn into_parts(self) -> Vec<(usize, BiasSum)> {
        self.found.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// [`ClippingRecorder::finish`] of the sums by sequence that were noted.
    pub fn sum_up(mut parts: Vec<(usize, BiasSum)>) -> (BiasSum, Vec<usize>) {
        parts.sort_by_key(|(sequence, _)| *sequence);
        let mut sum = BiasSum::default();
        for (_, bias) in &parts {
            sum.join(bias);
        }
        let clipped = parts.iter().filter(|(_, bias)| bias.clipped > 0).map(|(sequence, _)| *sequence);
        (sum, clipped.collect())
    }
}

impl Objective for ClippingRecorder<'_> {
    fn needs_entropies(&self) -> bool {
        self.policy.needs_entropies()
    }

    fn needs_reference_kls(&self) -> bool {
        self.policy.needs_reference_kls()
    }

    fn evaluate(
        &self,
        sequence: usize,
        tokens: TokenStatistics<'_>,
    ) -> Result<TokenGradients, ObjectiveError> {
        let logprobs: Vec<f64> = tokens.logprobs.iter().copied().map(f64::from).collect();
        let bias = self.policy.clipping_bias(sequence, &logprobs)?;
        self.found.lock().unwrap_or_else(PoisonError::into_inner).push((sequence, BiasSum::of(&bias)));
        self.policy.evaluate(sequence, tokens)
    }
}

/// Some sequences of a batch under an objective of the whole batch.
#[derive(Clone, Copy, Debug)]
pub struct Subset<'a, O: ?Sized> {
    /// The objective of the whole batch.
    pub inner: &'a O,
    /// Index of each sequence in the whole batch.
    pub indices: &'a [usize],
}

impl<O: Objective + ?Sized> Objective for Subset<'_, O> {
    fn needs_entropies(&self) -> bool {
        self.inner.needs_entropies()
    }

    fn needs_reference_kls(&self) -> bool {
        self.inner.needs_reference_kls()
    }

    fn evaluate(
        &self,
        sequence: usize,
        tokens: TokenStatistics<'_>,
    ) -> Result<TokenGradients, ObjectiveError> {
        let Some(&index) = self.indices.get(sequence) else {
            return Err(ObjectiveError::Setting(format!("sequence {sequence} is not in the subset")));
        };
        self.inner.evaluate(index, tokens)
    }
}

/// Objective that a learner runs backward from to get the gradient of the clipping bias: the norm of what it
/// accumulates is the parameter norm.
#[derive(Clone, Copy, Debug)]
pub struct BiasObjective<'a>(pub &'a PolicyObjective);

impl Objective for BiasObjective<'_> {
    fn evaluate(
        &self,
        sequence: usize,
        tokens: TokenStatistics<'_>,
    ) -> Result<TokenGradients, ObjectiveError> {
        let logprobs: Vec<f64> = tokens.logprobs.iter().copied().map(f64::from).collect();
        let bias = self.0.clipping_bias(sequence, &logprobs)?;
        Ok(TokenGradients {
            loss: bias.entries.iter().sum(),
            d_logprobs: bias.d_logprobs.iter().map(|&slope| slope as f32).collect(),
            ..TokenGradients::default()
        })
    }
}
