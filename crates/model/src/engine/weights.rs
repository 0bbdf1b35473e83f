//! The weights that engines share.

use std::sync::Arc;

use crate::cpu::decode::EngineWeights;
use crate::{Compute, Device, ModelError, Weights};

/// Weights that engines share, on the CPU or on a device.
#[derive(Clone)]
pub enum SharedWeights {
    /// Packed for the CPU.
    Host(Arc<EngineWeights>),
    /// On a device, which reads them where its learner does.
    #[cfg(feature = "cuda")]
    Cuda(crate::cuda::DeviceWeights),
}

impl SharedWeights {
    /// Prepares weights for engines on a device; `version` is reported in completions. A device
    /// ignores `compute`.
    ///
    /// # Errors
    /// On the CPU what [`EngineWeights::of`] rejects. On a device: this program was built without it,
    /// there is none, its kernels cannot run the model's shape, or its memory does not suffice.
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
