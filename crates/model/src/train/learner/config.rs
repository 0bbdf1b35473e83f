//! Settings of the learner, checked.

use serde::{Deserialize, Serialize};

use crate::{AdamWConfig, Compute, Device, ModelError};

/// Settings of the native learner.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LearnerConfig {
    /// Maximum tokens of a micro-batch, with shared tokens counted once; a longer sequence is its
    /// own micro-batch. It affects memory, not results.
    #[schemars(range(min = 1, max = 100_000_000))]
    pub micro_batch_tokens: usize,
    /// The device.
    pub device: Device,
    /// Number of lanes, each on its own thread; their gradients are summed in order. The same
    /// number gives the same bits on one machine, for any number of cores. A device uses one.
    #[schemars(range(min = 1, max = 1024))]
    pub lanes: usize,
    /// Divides the logits, so that log-probs are those at the sampling temperature.
    #[schemars(range(max = 100.0), extend("exclusiveMinimum" = 0.0))]
    pub temperature: f64,
    /// Keep only the inputs of layers and make the rest again in backward: about a third more work for
    /// a fraction of the memory.
    pub recompute: bool,
    /// Compute prefixes that sequences of a micro-batch share once, and group sequences by shared
    /// prefixes. Results differ by rounding. Off with dropout and on a device.
    pub share_prefixes: bool,
    /// Precision in which matrices are multiplied.
    pub compute: Compute,
    /// Seed of an adapter's dropout, the only randomness of a learner.
    pub seed: u64,
    /// The optimizer.
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
        // TOML has no integers of 64 bits without a sign, and every seed is one.
        turnwise_settings::check(&Self { seed: 0, ..*self }).map_err(ModelError::Settings)?;
        Ok(())
    }
}
