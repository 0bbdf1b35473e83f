use std::sync::Arc;

use crate::cpu::decode::EngineWeights;
use crate::{Compute, Device, ModelError, Weights};

/// Weights for sampling, shared by engines.
#[derive(Clone)]
pub enum SharedWeights {
    /// Packed weights for the CPU.
    Host(Arc<EngineWeights>),
    /// Weights on a device, used without copying.
    #[cfg(feature = "cuda")]
    Cuda(crate::cuda::DeviceWeights),
}

impl SharedWeights {
    /// Prepares weights for engines on the CPU or a device; a device ignores `compute`. Completions
    /// report `version`.
    ///
    /// # Errors
    /// Fails like [`EngineWeights::of`], or if the device is missing or too small, or does not
    /// support the model.
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
