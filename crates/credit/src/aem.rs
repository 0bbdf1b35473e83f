//! AEM, adaptive entropy modulation: `A <- alpha A` (AEM, section 4.2, equations 12 to 14, and
//! algorithm 1).
//!
//! `h = (Hbar - min) / (max - min + eps)` over the group's responses, and
//! `alpha = exp(-lambda h) / (mean over the group of exp(-lambda h) + eps)`, or 1 if max - min is
//! below `min_spread`.
//!
//! Of the two masks of figure 3 (section 5.3, analysis B), one sets `A` to 0 if
//! `A (alpha - 1) > 0`, the other if `A (alpha - 1) < 0`. The masks leave all other advantages
//! unscaled.
//!
//! Differs from the paper: with `lambda = 0`, advantages stay bit-identical instead of being
//! divided by `1 + eps`. `mode` selects the paper's ablations; the shuffled masks and the masks
//! that depend only on entropy are our controls for figure 3.

use serde::{Deserialize, Serialize};
use turnwise_core::{Batch, PerToken, PerTurn, Preset};

use crate::entropies::{extent, mean_entropies};
use crate::registry::{MethodSettings, in_range};
use crate::{CreditError, CreditInputs, Explanation, Refinement, TurnField};

const NAME: &str = "aem";

const SETTINGS: &str = "credit.refinements = [{ kind = \"aem\" }]\nobjective.kl.coef = 0.01";

/// The paper averages the loss over each sequence's tokens, then over sequences (equation 69).
const GRPO_SETTINGS: &str = "credit.refinements = [{ kind = \"aem\" }]\n\
                             objective = { loss_agg_mode = \"seq-mean-token-mean\", kl.coef = 0.01 }";

/// Variants and ablations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AemMode {
    /// The paper's method: low relative entropy raises the weight.
    #[default]
    Normal,
    /// Negates lambda.
    Reverse,
    /// Permutes coefficients within the scope, seeded by run, step and scope.
    Shuffle,
    /// Sets `A` to 0 if `A (alpha - 1)` is positive, else keeps it unscaled; in the paper, this
    /// raises entropy.
    MaskPositive,
    /// Sets `A` to 0 if `A (alpha - 1)` is negative, else keeps it unscaled; in the paper, this
    /// lowers entropy.
    MaskNegative,
    /// `mask-positive` with shuffled coefficients, so that the mask does not depend on entropy.
    MaskPositiveShuffle,
    /// `mask-negative` with shuffled coefficients, so that the mask does not depend on entropy.
    MaskNegativeShuffle,
    /// Sets the advantage of uncertain responses (alpha below 1) to 0.
    MaskUncertain,
    /// Sets the advantage of confident responses (alpha above 1) to 0.
    MaskConfident,
}

impl AemMode {
    fn factor(self, advantage: f64, alpha: f64) -> f64 {
        let direction = advantage * (alpha - 1.0);
        match self {
            Self::Normal | Self::Reverse | Self::Shuffle => alpha,
            Self::MaskPositive | Self::MaskPositiveShuffle if direction > 0.0 => 0.0,
            Self::MaskNegative | Self::MaskNegativeShuffle if direction < 0.0 => 0.0,
            Self::MaskUncertain if alpha < 1.0 => 0.0,
            Self::MaskConfident if alpha > 1.0 => 0.0,
            Self::MaskPositive
            | Self::MaskNegative
            | Self::MaskPositiveShuffle
            | Self::MaskNegativeShuffle
            | Self::MaskUncertain
            | Self::MaskConfident => 1.0,
        }
    }

    fn masks(self) -> bool {
        !matches!(self, Self::Normal | Self::Reverse | Self::Shuffle)
    }

    fn shuffles(self) -> bool {
        matches!(self, Self::Shuffle | Self::MaskPositiveShuffle | Self::MaskNegativeShuffle)
    }
}

/// Responses whose entropies are normalized together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AemScope {
    /// All responses of the group.
    #[default]
    Group,
    /// Responses of the same trajectory.
    Trajectory,
    /// All responses of the batch.
    Batch,
}

/// Settings of AEM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AemConfig {
    /// Strength of the modulation, `lambda`.
    #[schemars(range(min = -100.0, max = 100.0))]
    pub lambda: f64,
    /// Constant `eps` that is added to both denominators.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub epsilon: f64,
    /// Minimum spread of the scope's entropies, in nats; if the spread is smaller, advantages are
    /// not scaled.
    #[schemars(range(min = 0.0, max = 1000.0))]
    pub min_spread: f64,
    /// Variant.
    pub mode: AemMode,
    /// Responses whose entropies are normalized together.
    pub scope: AemScope,
}

impl Default for AemConfig {
    fn default() -> Self {
        Self { lambda: 1.0, epsilon: 1e-8, min_spread: 0.1, mode: AemMode::Normal, scope: AemScope::Group }
    }
}

impl MethodSettings for AemConfig {
    const KIND: &'static str = NAME;
    const PRESETS: &'static [Preset] = &[
        Preset::on("grpo", "aem-grpo", GRPO_SETTINGS),
        Preset::on("dapo", "aem-dapo", SETTINGS),
        Preset::on("gspo", "aem-gspo", SETTINGS),
        Preset::on("gigpo", "aem-gigpo", SETTINGS),
        // Section 5.2: DeepSWE's recipe, without a KL term.
        Preset::on("deepswe", "aem-deepswe", "credit.refinements = [{ kind = \"aem\" }]"),
    ];
    type Method = Aem;

    fn build(self) -> Result<Aem, CreditError> {
        Aem::new(self)
    }
}

/// The AEM refinement.
#[derive(Clone, Debug)]
pub struct Aem {
    config: AemConfig,
}

/// Group, trajectory, turn.
type Place = (usize, usize, usize);

impl Aem {
    /// Creates AEM.
    ///
    /// # Errors
    /// Fails on invalid settings.
    pub fn new(config: AemConfig) -> Result<Self, CreditError> {
        in_range(NAME, &config)?;
        let refuse = |reason| Err(CreditError::Setting { method: NAME, reason });
        if config.lambda < 0.0 && matches!(config.mode, AemMode::MaskUncertain | AemMode::MaskConfident) {
            return refuse(format!(
                "lambda is {}, with which alpha is low where the policy is confident; mode \"{}\" needs 0 or more",
                config.lambda,
                if config.mode == AemMode::MaskUncertain { "mask-uncertain" } else { "mask-confident" }
            ));
        }
        Ok(Self { config })
    }

    /// Returns each turn's `alpha`.
    ///
    /// # Errors
    /// Fails on missing, NaN or infinite entropies.
    pub fn coefficients(&self, inputs: &CreditInputs<'_>) -> Result<PerTurn<f64>, CreditError> {
        let entropies = mean_entropies(NAME, inputs.batch)?;
        let mut alpha = entropies.clone();
        for (number, scope) in self.scopes(inputs.batch).into_iter().enumerate() {
            let values: Vec<f64> = scope.iter().map(|&turn| entropies[turn]).collect();
            let mut coefficients = self.scope_coefficients(&values);
            if self.config.mode.shuffles() {
                inputs.rng(number as u64).shuffle(&mut coefficients);
            }
            for (&turn, value) in scope.iter().zip(coefficients) {
                alpha[turn] = value;
            }
        }
        Ok(alpha)
    }

    fn scopes(&self, batch: &Batch) -> Vec<Vec<Place>> {
        let mut scopes: Vec<Vec<Place>> = vec![Vec::new()];
        for (g, group) in batch.groups.iter().enumerate() {
            if self.config.scope == AemScope::Group {
                scopes.push(Vec::new());
            }
            for (i, trajectory) in group.trajectories.iter().enumerate() {
                if self.config.scope == AemScope::Trajectory {
                    scopes.push(Vec::new());
                }
                let last = scopes.len() - 1;
                scopes[last].extend((0..trajectory.turns.len()).map(|t| (g, i, t)));
            }
        }
        scopes
    }

    fn scope_coefficients(&self, entropies: &[f64]) -> Vec<f64> {
        let AemConfig { lambda, epsilon, min_spread, mode, .. } = self.config;
        let lambda = if mode == AemMode::Reverse { -lambda } else { lambda };
        let Some((low, high)) = extent(entropies) else { return Vec::new() };
        // Equal entropies cannot be normalized, even with `min_spread = 0`.
        if high - low < min_spread || high == low || lambda == 0.0 {
            return vec![1.0; entropies.len()];
        }
        let weights: Vec<f64> = entropies
            .iter()
            .map(|entropy| (-lambda * (entropy - low) / (high - low + epsilon)).exp())
            .collect();
        let mean = weights.iter().sum::<f64>() / weights.len() as f64;
        weights.iter().map(|weight| weight / (mean + epsilon)).collect()
    }
}

impl Refinement for Aem {
    fn name(&self) -> &'static str {
        NAME
    }

    fn fields(&self) -> Vec<TurnField> {
        vec![TurnField::Entropies]
    }

    fn works_on_tokens(&self) -> bool {
        true
    }

    fn refine(
        &self,
        inputs: &CreditInputs<'_>,
        advantages: &mut PerTurn<f64>,
        explanation: &mut Explanation,
    ) -> Result<(), CreditError> {
        let alpha = self.coefficients(inputs)?;
        let (mut factors, mut masked) = (alpha.clone(), 0);
        for (factor, advantage) in factors.values_mut().zip(advantages.values_mut()) {
            *factor = self.config.mode.factor(*advantage, *factor);
            masked += usize::from(*factor == 0.0 && *advantage != 0.0);
            // A factor of 1 keeps the advantage bit-identical.
            *advantage *= *factor;
        }
        let units = advantages.values().count();
        self.record(inputs, &alpha, &factors.map(|&factor| Some(factor)), (masked, units), explanation);
        Ok(())
    }

    fn refine_tokens(
        &self,
        inputs: &CreditInputs<'_>,
        tokens: &mut PerToken<f64>,
        explanation: &mut Explanation,
    ) -> Result<(), CreditError> {
        let alpha = self.coefficients(inputs)?;
        let mut factors = alpha.map(|_| None);
        let (mut masked, mut units) = (0, 0);
        for (number, group) in inputs.batch.groups.iter().enumerate() {
            for (member, trajectory) in group.trajectories.iter().enumerate() {
                let mut row = tokens[(number, member)].iter_mut();
                for (turn, of) in trajectory.turns.iter().enumerate() {
                    let (index, count) = ((number, member, turn), of.response_ids.len());
                    let mut shared = Vec::with_capacity(count);
                    for advantage in row.by_ref().take(count) {
                        let factor = self.config.mode.factor(*advantage, alpha[index]);
                        masked += usize::from(factor == 0.0 && *advantage != 0.0);
                        *advantage *= factor;
                        shared.push(factor);
                    }
                    units += count;
                    // A mask may keep only some tokens of a response.
                    let equal = shared.windows(2).all(|pair| pair[0] == pair[1]);
                    factors[index] = shared.first().copied().filter(|_| equal);
                }
            }
        }
        self.record(inputs, &alpha, &factors, (masked, units), explanation);
        Ok(())
    }
}

impl Aem {
    fn record(
        &self,
        inputs: &CreditInputs<'_>,
        alpha: &PerTurn<f64>,
        factors: &PerTurn<Option<f64>>,
        (masked, units): (usize, usize),
        explanation: &mut Explanation,
    ) {
        let masks = self.config.mode.masks();
        for (index, (group, alpha)) in inputs.batch.groups.iter().zip(alpha.groups()).enumerate() {
            explanation.facts(index, alpha, |trajectory, turn, &alpha| {
                let entropy = group.trajectories[trajectory].turns[turn].mean_entropy();
                let mut facts: Vec<_> = entropy.map(|entropy| ("entropy", entropy)).into_iter().collect();
                facts.push(("alpha", alpha));
                let factor = factors[(index, trajectory, turn)].filter(|_| masks);
                facts.extend(factor.map(|factor| ("factor", factor)));
                facts
            });
        }
        if masks && units > 0 {
            explanation.diagnostic("aem/masked_frac", masked as f64 / units as f64);
        }
        if let Some((low, high)) = extent(alpha.values()) {
            explanation.diagnostic("aem/alpha_min", low);
            explanation.diagnostic("aem/alpha_max", high);
        }
    }
}
