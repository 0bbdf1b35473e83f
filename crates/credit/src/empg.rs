//! EMPG, entropy-modulated policy gradients (Wang et al. 2025, "Harnessing Uncertainty").
//!
//! `hn = (Hbar - min) / (max - min + eps)` over the batch, `g = exp(-k hn) / mean(exp(-k hn))`,
//! `f = exp(-k' hn)`, `A_t <- g_t A_t + zeta f_{t+1}`; then the batch mean is subtracted.
//!
//! Differs from the paper: entropies are normalized over the batch's turns. A trajectory's last
//! turn gets no bonus, because no response follows it.

use serde::{Deserialize, Serialize};
use turnwise_core::{PerTurn, Preset};

use crate::entropies::{extent, mean_entropies};
use crate::registry::{MethodSettings, in_range};
use crate::{CreditError, CreditInputs, Explanation, Refinement, TurnField};

const NAME: &str = "empg";

/// Settings of EMPG.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EmpgConfig {
    /// Strength of the self-calibrating scaling, `k`.
    #[schemars(range(min = -100.0, max = 100.0))]
    pub k: f64,
    /// Strength of the bonus for a confident next turn, `k'`.
    #[schemars(range(min = -100.0, max = 100.0))]
    pub k_future: f64,
    /// Weight of the bonus for a confident next turn.
    #[schemars(range(min = -1000.0, max = 1000.0))]
    pub zeta: f64,
    /// Constant `eps` that is added to the entropy range before dividing by it.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub epsilon: f64,
}

impl Default for EmpgConfig {
    fn default() -> Self {
        Self { k: 1.0, k_future: 1.0, zeta: 0.05, epsilon: 1e-8 }
    }
}

impl MethodSettings for EmpgConfig {
    const KIND: &'static str = NAME;
    const PRESETS: &'static [Preset] =
        &[Preset::on("grpo", "empg", "credit.refinements = [{ kind = \"empg\" }]")];
    type Method = Empg;

    fn build(self) -> Result<Empg, CreditError> {
        Empg::new(self)
    }
}

/// The EMPG refinement.
#[derive(Clone, Debug)]
pub struct Empg {
    config: EmpgConfig,
}

impl Empg {
    /// Creates EMPG.
    ///
    /// # Errors
    /// Fails on invalid settings.
    pub fn new(config: EmpgConfig) -> Result<Self, CreditError> {
        in_range(NAME, &config)?;
        Ok(Self { config })
    }
}

impl Refinement for Empg {
    fn name(&self) -> &'static str {
        NAME
    }

    fn fields(&self) -> Vec<TurnField> {
        vec![TurnField::Entropies]
    }

    fn refine(
        &self,
        inputs: &CreditInputs<'_>,
        advantages: &mut PerTurn<f64>,
        explanation: &mut Explanation,
    ) -> Result<(), CreditError> {
        let EmpgConfig { k, k_future, zeta, epsilon } = self.config;
        let mut entropies = mean_entropies(NAME, inputs.batch)?;
        let Some((low, high)) = extent(entropies.values()) else { return Ok(()) };
        // With equal entropies every hn is 0, not NaN, even with epsilon = 0.
        let range = if high == low { 1.0 } else { high - low + epsilon };
        entropies.values_mut().for_each(|entropy| *entropy = (*entropy - low) / range);
        let count = entropies.values().count() as f64;
        let mean = entropies.values().map(|hn| (-k * hn).exp()).sum::<f64>() / count;

        // (scale, bonus) of each turn.
        let mut sum = 0.0;
        let mut parts: PerTurn<(f64, f64)> = PerTurn::default();
        for (entropies, advantages) in entropies.groups().zip(advantages.groups_mut()) {
            let mut group = Vec::with_capacity(entropies.len());
            for (entropies, advantages) in entropies.iter().zip(advantages) {
                let mut turns = Vec::with_capacity(entropies.len());
                for (turn, advantage) in advantages.iter_mut().enumerate() {
                    let scale = (-k * entropies[turn]).exp() / mean;
                    let bonus = entropies.get(turn + 1).map_or(0.0, |next| zeta * (-k_future * next).exp());
                    *advantage = scale * *advantage + bonus;
                    sum += *advantage;
                    turns.push((scale, bonus));
                }
                group.push(turns);
            }
            parts.push(group);
        }
        let centre = sum / count;
        advantages.values_mut().for_each(|advantage| *advantage -= centre);
        for (index, parts) in parts.groups().enumerate() {
            explanation.facts(index, parts, |trajectory, turn, &(scale, bonus)| {
                vec![
                    ("entropy_normalised", entropies[(index, trajectory, turn)]),
                    ("scale", scale),
                    ("bonus", bonus),
                    ("centre", centre),
                ]
            });
        }
        explanation.diagnostic("empg/mean", centre);
        Ok(())
    }
}
