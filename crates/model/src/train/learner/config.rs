//! Settings of the learner.

use serde::{Deserialize, Serialize};

use crate::{AdamWConfig, Compute, Device, ModelError};

/// Settings of the native learner.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LearnerConfig {
    /// Maximum tokens of a micro-batch, counting shared tokens once. A longer sequence is its own
    /// micro-batch. Affects memory, not results.
    #[schemars(range(min = 1, max = 100_000_000))]
    pub micro_batch_tokens: usize,
    /// Device that runs the passes.
    pub device: Device,
    /// Number of lanes, each on its own thread. Gradients are summed in lane order, so with equal
    /// values results are bit-identical on one machine, with any number of cores. A device uses one
    /// lane.
    #[schemars(range(min = 1, max = 1024))]
    pub lanes: usize,
    /// Divides the logits, so that log-probs match the sampling temperature.
    #[schemars(range(max = 100.0), extend("exclusiveMinimum" = 0.0))]
    pub temperature: f64,
    /// Keep only layer inputs and recompute the rest in backward. About a third more work for a
    /// fraction of the memory.
    pub recompute: bool,
    /// Compute prefixes shared by sequences of a micro-batch once, and group sequences by prefix.
    /// Changes results by rounding only. Off with dropout and on a device.
    pub share_prefixes: bool,
    /// Precision of matrix products.
    pub compute: Compute,
    /// Seed of the adapter's dropout, the learner's only randomness.
    pub seed: u64,
    /// Settings of the optimizer.
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
        // TOML has no unsigned 64-bit integers, and every seed is valid.
        turnwise_settings::check(&Self { seed: 0, ..*self }).map_err(ModelError::Settings)?;
        Ok(())
    }
}
