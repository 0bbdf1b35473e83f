//! The device that runs a model.

use serde::{Deserialize, Serialize};

use crate::ModelError;

/// Device that runs the model. Both devices support all settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// CPU, in `f32`; the reference.
    #[default]
    Cpu,
    /// NVIDIA GPU, with `bfloat16` matrix products; sums and master weights are `f32`. Needs a
    /// build with the feature `cuda`.
    Cuda,
}

impl Device {
    /// Opens the device and returns its description; `None` for the CPU.
    ///
    /// # Errors
    /// Fails if the build lacks the feature or the machine has no device. The message says how to
    /// fix it.
    pub fn open(self) -> Result<Option<String>, ModelError> {
        self.check()?;
        #[cfg(feature = "cuda")]
        if self == Self::Cuda {
            return crate::cuda::describe().map(Some).map_err(crate::cuda::CudaError::into_setting);
        }
        Ok(None)
    }

    /// Returns the memory of the device in bytes. `None` for the CPU, without the feature `cuda`,
    /// or without a device.
    pub fn memory(self) -> Option<u64> {
        #[cfg(feature = "cuda")]
        if self == Self::Cuda {
            return crate::cuda::total_memory().ok().map(|bytes| bytes as u64);
        }
        None
    }

    /// Rejects a device that this build does not support. [`Device::open`] checks that the device
    /// exists.
    ///
    /// # Errors
    /// Returns [`ModelError::Setting`] for CUDA in a build without the feature `cuda`.
    pub fn check(self) -> Result<(), ModelError> {
        if self == Self::Cuda && !cfg!(feature = "cuda") {
            return Err(ModelError::Setting {
                key: "policy.device".into(),
                reason: "this program was built without CUDA; build it with `--features cuda`, or set \
                         policy.device = \"cpu\""
                    .into(),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_spelt_as_in_a_config_and_one_that_is_not_there_is_refused() {
        for (device, text) in [(Device::Cpu, "\"cpu\""), (Device::Cuda, "\"cuda\"")] {
            assert_eq!(serde_json::to_string(&device).unwrap(), text);
            assert_eq!(serde_json::from_str::<Device>(text).unwrap(), device);
        }
        assert!(serde_json::from_str::<Device>("\"gpu\"").is_err());
        assert_eq!(Device::Cpu.open().unwrap(), None);
        assert_eq!(Device::Cpu.memory(), None);
        assert_eq!(Device::Cuda.memory().is_some(), Device::Cuda.open().is_ok());
        match Device::Cuda.open() {
            Ok(device) => assert!(device.is_some_and(|name| name.contains("MiB"))),
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("policy.device"), "{text}");
                assert_eq!(text.contains("--features cuda"), !cfg!(feature = "cuda"), "{text}");
            }
        }
    }
}
