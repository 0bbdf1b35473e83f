//! Low-rank adapters (LoRA) on a decoder's linear layers.
//!
//! Hu et al. (2021), "LoRA: Low-Rank Adaptation of Large Language Models". A trained matrix of rank
//! `r` is added to a frozen matrix `W`, `[outputs, inputs]`:
//!
//! ```text
//! y = x W^T + s dropout(x) A^T B^T        A: [r, inputs]   B: [outputs, r]
//! s = alpha / r, or alpha / sqrt(r) with `rslora` (Kalajdzievski 2023)
//! ```
//!
//! `A` is initialized uniformly and `B` to zero, so a new adapter changes nothing. Names, shapes,
//! settings and files ([`crate::save_adapter`], [`crate::load_adapter`]) follow PEFT.

mod adapter;
mod dropout;
#[cfg(test)]
mod golden_tests;
mod pass;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use adapter::{Adapter, AdapterLayout, AdapterPart, Branch};
pub(crate) use dropout::Dropout;
pub(crate) use pass::{BranchPass, Scratch};

use crate::{LayerLayout, ModelConfig, ModelError};

/// Settings of a LoRA adapter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoraConfig {
    /// Rank of each adapter matrix.
    #[schemars(range(min = 1, max = 4096))]
    pub rank: usize,
    /// Numerator of the scale `alpha / rank`.
    #[schemars(range(max = 1e6), extend("exclusiveMinimum" = 0.0))]
    pub alpha: f64,
    /// Probability of dropping an entry of an adapter's input in training. Sampling has no dropout,
    /// so importance ratios differ from 1 even before the first update.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    pub dropout: f64,
    /// Scales by `alpha / sqrt(rank)` instead of `alpha / rank`.
    pub rslora: bool,
    /// Linear layers of every decoder layer that get an adapter: `all-linear`, or some of `q_proj`,
    /// `k_proj`, `v_proj`, `o_proj`, `gate_proj`, `up_proj` and `down_proj`.
    #[schemars(length(min = 1))]
    pub targets: Vec<String>,
}

impl Default for LoraConfig {
    fn default() -> Self {
        Self { rank: 32, alpha: 64.0, dropout: 0.0, rslora: false, targets: vec![ALL_LINEAR.into()] }
    }
}

/// Every linear layer but the output layer, as in PEFT.
pub(crate) const ALL_LINEAR: &str = "all-linear";

impl LoraConfig {
    /// Returns the scale `s`.
    pub fn scale(&self) -> f64 {
        let rank = self.rank as f64;
        self.alpha / if self.rslora { rank.sqrt() } else { rank }
    }

    /// Returns the linear layers that get an adapter, in the order of [`Module::ALL`].
    ///
    /// # Errors
    /// Fails on an unknown name. An empty list is valid here; [`LoraConfig::check`] rejects it.
    pub fn modules(&self) -> Result<Vec<Module>, ModelError> {
        let fail = |reason: String| Err(ModelError::Setting { key: "targets".into(), reason });
        let known = || Module::ALL.map(Module::name).join(", ");
        let all = self.targets.iter().any(|target| target == ALL_LINEAR);
        let mut chosen = [all; Module::ALL.len()];
        for target in self.targets.iter().filter(|target| *target != ALL_LINEAR) {
            match Module::named(target) {
                Some(module) => chosen[module as usize] = true,
                None if target == "lm_head" || target == "embed_tokens" => {
                    return fail(format!(
                        "`{target}` cannot have an adapter here; there are: {ALL_LINEAR}, {}",
                        known()
                    ));
                }
                None => return fail(format!("`{target}` is none; there are: {ALL_LINEAR}, {}", known())),
            }
        }
        Ok(Module::ALL.into_iter().filter(|&module| chosen[module as usize]).collect())
    }

    /// Replaces `all-linear` with module names, in the order of [`Module::ALL`].
    ///
    /// # Errors
    /// Fails like [`LoraConfig::modules`].
    pub fn spelled_out(&self) -> Result<Self, ModelError> {
        let targets = self.modules()?.into_iter().map(|module| module.name().to_owned()).collect();
        Ok(Self { targets, ..self.clone() })
    }

    /// Rejects invalid settings.
    ///
    /// # Errors
    /// Fails like [`LoraConfig::modules`], or if rank, alpha or dropout is out of range or
    /// `targets` is empty. The error names the key.
    pub fn check(&self) -> Result<(), ModelError> {
        turnwise_settings::check(self).map_err(ModelError::Settings)?;
        self.modules().map(|_| ())
    }
}

/// A linear layer of the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Module {
    /// Query projection.
    Query,
    /// Key projection.
    Key,
    /// Value projection.
    Value,
    /// Output projection of attention.
    Output,
    /// MLP gate projection.
    Gate,
    /// MLP up projection.
    Up,
    /// MLP down projection.
    Down,
}

impl Module {
    /// All modules, in tensor order.
    pub const ALL: [Self; 7] =
        [Self::Query, Self::Key, Self::Value, Self::Output, Self::Gate, Self::Up, Self::Down];

    /// Returns the name in `targets`, such as `q_proj`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Query => "q_proj",
            Self::Key => "k_proj",
            Self::Value => "v_proj",
            Self::Output => "o_proj",
            Self::Gate => "gate_proj",
            Self::Up => "up_proj",
            Self::Down => "down_proj",
        }
    }

    /// Finds a module by name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|module| module.name() == name)
    }

    /// Returns the name within a layer, such as `self_attn.q_proj`.
    pub fn path(self) -> String {
        let part = match self {
            Self::Query | Self::Key | Self::Value | Self::Output => "self_attn",
            Self::Gate | Self::Up | Self::Down => "mlp",
        };
        format!("{part}.{}", self.name())
    }

    /// Returns the number of the weight's columns.
    pub fn inputs(self, config: &ModelConfig) -> usize {
        match self {
            Self::Query | Self::Key | Self::Value | Self::Gate | Self::Up => config.hidden_size,
            Self::Output => config.query_width(),
            Self::Down => config.intermediate_size,
        }
    }

    /// Returns the number of the weight's rows.
    pub fn outputs(self, config: &ModelConfig) -> usize {
        match self {
            Self::Query => config.query_width(),
            Self::Key | Self::Value => config.key_value_width(),
            Self::Output | Self::Down => config.hidden_size,
            Self::Gate | Self::Up => config.intermediate_size,
        }
    }

    /// Returns the weight's range in the buffer.
    pub fn weight(self, layer: &LayerLayout) -> std::ops::Range<usize> {
        match self {
            Self::Query => &layer.q_weight,
            Self::Key => &layer.k_weight,
            Self::Value => &layer.v_weight,
            Self::Output => &layer.o_weight,
            Self::Gate => &layer.gate_weight,
            Self::Up => &layer.up_weight,
            Self::Down => &layer.down_weight,
        }
        .clone()
    }
}

/// Modules with the same input, computed as one matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joint {
    /// Query, key and value projections.
    Qkv,
    /// Output projection of attention.
    Output,
    /// Gate and up projections.
    GateUp,
    /// MLP down projection.
    Down,
}

impl Joint {
    /// All products, in forward order.
    pub const ALL: [Self; 4] = [Self::Qkv, Self::Output, Self::GateUp, Self::Down];

    /// Returns the product's modules, in the order of its output columns.
    pub fn modules(self) -> &'static [Module] {
        match self {
            Self::Qkv => &[Module::Query, Module::Key, Module::Value],
            Self::Output => &[Module::Output],
            Self::GateUp => &[Module::Gate, Module::Up],
            Self::Down => &[Module::Down],
        }
    }
}
