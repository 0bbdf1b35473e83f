//! SORL's clipping-triggered normalization: divides the gradient by `max(||C||_2, delta)` (SORL,
//! equations 8, 9 and 12).
//!
//! The clipping bias C has the entries `1 / (B |y|) 1[clipped] w_t A_t` over the minibatch's
//! tokens. The norm of C is a setting:
//! * `parameter`: the norm of the weight gradient of the clipped tokens' unclipped surrogate (proof
//!   A.3 and figure 4), which costs another backward pass over the sequences with clipped tokens
//!   ([`ClippingBias::d_logprobs`]);
//! * `token`: the L2 norm over the entries;
//! * `scalar`: the absolute value of the sum of the entries.
//!
//! Differs from the paper: equation 8 defines C as a number, while the proof and the figure use the
//! gradient of C, so the norm is a setting here. The factor scales the whole gradient, including KL
//! term, entropy bonus and selective term; equations 12 and 15 scale only the surrogate. The
//! presets have the KL in the loss, like GRPO; `objective.kl.apply_to = "reward"` is another
//! reading of appendix A.4.

use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use turnwise_core::{
    GradientPass, GradientScale, Objective, ObjectiveError, Preset, RequiredPasses, SecondPass,
    TokenGradients, TokenStatistics,
};

use crate::{LossTerm, Minibatch, PolicyObjective, TermObjective};

/// Norm of the clipping bias to divide by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BiasNorm {
    /// Norm of the gradient of the bias with respect to the weights.
    #[default]
    Parameter,
    /// L2 norm of the bias's entries.
    Token,
    /// Absolute value of the sum of the bias's entries.
    Scalar,
}

/// Settings of the normalization.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NormalizationConfig {
    /// Norm of the clipping bias to divide by.
    pub norm: BiasNorm,
    /// Lower bound of the divisor.
    #[schemars(range(max = 1e9), extend("exclusiveMinimum" = 0.0))]
    pub delta: f64,
    /// Measure the norm (`normalization/bias_norm`, SORL's figure 4) without scaling the gradient.
    /// This costs as much as scaling.
    pub measure_only: bool,
}

impl Default for NormalizationConfig {
    fn default() -> Self {
        Self { norm: BiasNorm::Parameter, delta: 1.0, measure_only: false }
    }
}

impl NormalizationConfig {
    /// Returns the factor on the gradient: `1 / max(norm, delta)`, or 1 if `measure_only`.
    ///
    /// # Errors
    /// Fails if delta is not positive, or if the norm is NaN.
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

/// SORL's presets: PPO with one ratio per turn, and GRPO with one ratio per token.
///
/// Each batch is split into two minibatches (appendix A.4: 512 and 256) and used once (appendix
/// A.5: one on-policy and three off-policy updates for a batch split in four). The paper's "150th
/// optimization step (2 epochs)" fits minibatches of 256 on `AlphaMed19K`, so its "4 epochs" are
/// passes over the questions.
pub(crate) const PRESETS: &[Preset] = &[
    Preset::on(
        "ppo",
        "so-ppo",
        "credit.estimator.invalid_penalty = 0.0\n[objective]\nratio = \"turn\"\nloss_agg_mode = \"seq-mean-token-mean\"\nkl.coef = 0.001\nnormalization = {}\n\
         [train]\nnum_minibatches = 2",
    ),
    Preset::on(
        "grpo",
        "so-grpo",
        "credit.estimator.invalid_penalty = 0.0\n[objective]\nratio = \"token\"\nloss_agg_mode = \"seq-mean-token-mean\"\nkl.coef = 0.001\nnormalization = {}\n\
         [train]\nnum_minibatches = 2",
    ),
];

impl LossTerm for NormalizationConfig {
    fn kind(&self) -> &'static str {
        "normalization"
    }

    fn passes(&self) -> RequiredPasses {
        let gradient = match self.norm {
            BiasNorm::Parameter => GradientPass::ScaledByNorm,
            BiasNorm::Token | BiasNorm::Scalar => GradientPass::Scaled,
        };
        RequiredPasses { gradient, ..RequiredPasses::default() }
    }

    fn for_minibatch(&self, minibatch: &Minibatch<'_>) -> Result<TermObjective, ObjectiveError> {
        let policy = Arc::clone(minibatch.policy);
        Ok(Box::new(ClippingScale { config: self.clone(), policy, found: Mutex::default() }))
    }
}

/// Records each sequence's clipping bias in the backward pass.
#[derive(Debug)]
struct ClippingScale {
    config: NormalizationConfig,
    policy: Arc<PolicyObjective>,
    found: Mutex<Vec<(usize, BiasSum)>>,
}

impl ClippingScale {
    /// Returns the clipping bias recorded so far, summed in sequence order, and the sequences with
    /// clipped tokens.
    fn found(&self) -> (BiasSum, Vec<usize>) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner).clone();
        found.sort_by_key(|(sequence, _)| *sequence);
        let mut sum = BiasSum::default();
        for (_, bias) in &found {
            sum.join(bias);
        }
        let clipped = found.iter().filter(|(_, bias)| bias.clipped > 0).map(|(sequence, _)| *sequence);
        (sum, clipped.collect())
    }
}

impl Objective for ClippingScale {
    /// Records the clipping bias and returns 0.
    fn evaluate(
        &self,
        sequence: usize,
        tokens: TokenStatistics<'_>,
    ) -> Result<TokenGradients, ObjectiveError> {
        let bias = BiasSum::of(&bias_at(&self.policy, sequence, tokens)?);
        self.found.lock().unwrap_or_else(PoisonError::into_inner).push((sequence, bias));
        Ok(TokenGradients::default())
    }

    fn second_pass(&self) -> Result<Option<SecondPass<'_>>, ObjectiveError> {
        let (_, sequences) = self.found();
        if self.config.norm != BiasNorm::Parameter || sequences.is_empty() {
            return Ok(None);
        }
        let objective = Box::new(BiasOf { policy: &self.policy, sequences: sequences.clone() });
        Ok(Some(SecondPass { sequences, objective }))
    }

    fn gradient_scale(&self, second_norm: f64) -> Result<GradientScale, ObjectiveError> {
        let (sum, _) = self.found();
        let norm = match self.config.norm {
            BiasNorm::Parameter => second_norm,
            BiasNorm::Token => sum.token_norm(),
            BiasNorm::Scalar => sum.scalar_norm(),
        };
        let factor = self.config.factor(norm)?;
        let metrics = vec![("normalization/bias_norm".into(), norm), ("normalization/factor".into(), factor)];
        Ok(GradientScale { factor, metrics })
    }
}

fn bias_at(
    policy: &PolicyObjective,
    sequence: usize,
    tokens: TokenStatistics<'_>,
) -> Result<ClippingBias, ObjectiveError> {
    let logprobs: Vec<f64> = tokens.logprobs.iter().copied().map(f64::from).collect();
    policy.clipping_bias(sequence, &logprobs)
}

/// Second pass for the `parameter` norm: its gradient is the clipping bias of some sequences.
struct BiasOf<'a> {
    policy: &'a PolicyObjective,
    /// The sequences, as indices in the minibatch.
    sequences: Vec<usize>,
}

impl Objective for BiasOf<'_> {
    fn evaluate(
        &self,
        sequence: usize,
        tokens: TokenStatistics<'_>,
    ) -> Result<TokenGradients, ObjectiveError> {
        let Some(&sequence) = self.sequences.get(sequence) else {
            return Err(ObjectiveError::Setting(format!("sequence {sequence} is not in the second pass")));
        };
        let bias = bias_at(self.policy, sequence, tokens)?;
        Ok(TokenGradients {
            loss: bias.entries.iter().sum(),
            d_logprobs: bias.d_logprobs.iter().map(|&slope| slope as f32).collect(),
            ..TokenGradients::default()
        })
    }
}

/// The clipping bias of one sequence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClippingBias {
    /// One entry per response token; 0 if the token is not clipped.
    pub entries: Vec<f64>,
    /// Derivative of the entries' sum with respect to each log-prob, with the set of clipped tokens
    /// fixed.
    pub d_logprobs: Vec<f64>,
    /// Number of clipped tokens.
    pub clipped: usize,
}

/// Sum of clipping biases, for the norms that need no model pass.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BiasSum {
    squares: f64,
    sum: f64,
    /// Number of clipped tokens.
    pub clipped: usize,
}

impl BiasSum {
    /// Creates the sum for a single sequence.
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

    /// Adds another sum.
    fn join(&mut self, other: &Self) {
        self.squares += other.squares;
        self.sum += other.sum;
        self.clipped += other.clipped;
    }

    /// Returns the L2 norm of the entries.
    pub fn token_norm(&self) -> f64 {
        self.squares.sqrt()
    }

    /// Returns the absolute value of the sum.
    pub fn scalar_norm(&self) -> f64 {
        self.sum.abs()
    }
}
