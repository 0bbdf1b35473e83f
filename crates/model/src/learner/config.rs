//! Settings of the learner, checked.

use serde::{Deserialize, Serialize};

use crate::{AdamWConfig, Compute, Device, ModelError};

/// Settings of the native learner.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LearnerConfig {
    /// Most tokens of a micro-batch; a longer sequence is one of its own. Costs memory, not results.
    pub micro_batch_tokens: usize,
    /// The device.
    pub device: Device,
    /// Micro-batches worked on at a time, each on its own thread with its own gradient. The same
    /// number gives the same bits on every machine, however many processors it has, and over however
    /// many processes the lanes are spread ([`crate::NativeLearner::join`]). A device works on
    /// one at a time.
    pub lanes: usize,
    /// Divides the logits, so that log-probabilities are those at the sampling temperature.
    pub temperature: f64,
    /// Keep only the inputs of layers and make the rest anew in backward: about a third more work for
    /// a fraction of the memory.
    pub recompute: bool,
    /// In which numbers matrices are multiplied.
    pub compute: Compute,
    /// Seed of an adapter's dropout; nothing else in a learner is random.
    pub seed: u64,
    /// The optimiser.
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
            compute: Compute::F32,
            seed: 0,
            optimizer: AdamWConfig::default(),
        }
    }
}

impl LearnerConfig {
    pub(super) fn check(&self) -> Result<(), ModelError> {
        let fail =
            |key: &str, reason: &str| Err(ModelError::Setting { key: key.into(), reason: reason.into() });
        if self.micro_batch_tokens == 0 {
            return fail("micro_batch_tokens", "must be at least 1");
        }
        if !(1..=1024).contains(&self.lanes) {
            return fail("lanes", "must be 1 to 1024; one for each processor is a good choice");
        }
        if !(self.temperature > 0.0 && self.temperature.is_finite()) {
            return fail("temperature", "must be a positive number; for greedy sampling train at 1");
        }
        let AdamWConfig { beta1, beta2, epsilon, weight_decay, clip_norm } = self.optimizer;
        for (key, value) in [("optimizer.beta1", beta1), ("optimizer.beta2", beta2)] {
            if !(0.0..1.0).contains(&value) {
                return fail(key, "must be at least 0 and below 1");
            }
        }
        if !(epsilon > 0.0 && epsilon.is_finite()) {
            return fail("optimizer.epsilon", "must be a positive number");
        }
        if !(weight_decay >= 0.0 && weight_decay.is_finite()) {
            return fail("optimizer.weight_decay", "must be 0 or a positive number");
        }
        if clip_norm.is_nan() {
            return fail("optimizer.clip_norm", "must be a number; 0 switches clipping off");
        }
        Ok(())
    }
}
