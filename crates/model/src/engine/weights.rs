//! Weights shared by engines.

use std::sync::Arc;

use crate::cpu::decode::EngineWeights;
use crate::{Compute, Device, ModelError, Weights};

/// Weights shared by engines.
#[derive(Clone)]
pub enum SharedWeights {
    /// Packed weights for the CPU.
    Host(Arc<EngineWeights>),
    /// A learner's weights on a device, used without copying.
    #[cfg(feature = "cuda")]
    Cuda(crate::cuda::DeviceWeights),
}

impl SharedWeights {
    /// Prepares weights for engines on a device. Completions report `version`. A device ignores
    /// `compute`.
    ///
    /// # Errors
    /// On the CPU, fails like [`EngineWeights::of`]. On a device, fails if this build does not
    /// support it, if none is present, or if the model's shape or size is not supported.
    pub fn of(weights: &Weights, version: u64, device: Device, compute: Compute) -> Result<Self, ModelError> {
        weights.config().check_device(device)?;
        #[cfg(feature = "cuda")]
        if device == Device::Cuda {
            let weights = crate::cuda::DeviceWeights::upload(weights, version);
            return Ok(Self::Cuda(weights.map_err(crate::cuda::CudaError::into_setting)?));
        }
        Ok(Self::Host(Arc::new(EngineWeights::of(weights, version, compute)?)))
    }
}
