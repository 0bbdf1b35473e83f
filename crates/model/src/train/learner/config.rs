use serde::{Deserialize, Serialize};

use crate::{AdamWConfig, Compute, Device, ModelError};

/// Settings of the native learner.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LearnerConfig {
    /// Maximum number of tokens in a micro-batch, counting shared tokens once; a longer sequence
    /// gets its own micro-batch. This limit affects memory, and results only by rounding.
    #[schemars(range(min = 1, max = 100_000_000))]
    pub micro_batch_tokens: usize,
    /// Device that runs the passes.
    pub device: Device,
    /// Number of lanes, each on its own thread; a device uses one. Results depend on this value,
    /// but not on the number of cores.
    #[schemars(range(min = 1, max = 1024))]
    pub lanes: usize,
    /// Temperature that divides the logits, so that log-probs match those of sampling.
    #[schemars(range(max = 100.0), extend("exclusiveMinimum" = 0.0))]
    pub temperature: f64,
    /// Recompute activations in the backward pass: about a third more compute, a fraction of the
    /// memory.
    pub recompute: bool,
    /// Compute a prefix shared within a micro-batch only once. Sharing changes results only by
    /// rounding, and is off with dropout and on a device.
    pub share_prefixes: bool,
    /// Precision of matrix products.
    pub compute: Compute,
    /// Seed of the adapter's dropout, the only randomness in training.
    pub seed: u64,
    /// Optimizer settings.
    pub optimizer: AdamWConfig,
}

impl Default for LearnerConfig {
    fn default() -> Self {
        Self {
            micro_batch_tokens: 2048,
            device: Device::Cpu,
            lanes: 2,
            temperature: 1.0,
            recompute: false,
            share_prefixes: true,
            compute: Compute::F32,
            seed: 0,
            optimizer: AdamWConfig::default(),
        }
    }
}

impl LearnerConfig {
    pub(super) fn check(&self) -> Result<(), ModelError> {
        // TOML lacks unsigned 64-bit integers, and every seed is valid.
        turnwise_settings::check(&Self { seed: 0, ..*self }).map_err(ModelError::Settings)?;
        Ok(())
    }
}
