//! The device that a model runs on.

use serde::{Deserialize, Serialize};

use crate::ModelError;

/// The device that a model runs on. The same settings run on either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// This machine's CPU, in `f32`: the reference.
    #[default]
    Cpu,
    /// An NVIDIA GPU: products of `bfloat16`, sums and master weights in `f32`. Needs a program built
    /// with the feature `cuda`.
    Cuda,
}

impl Device {
    /// Opens the device; returns its description if it is not the CPU.
    ///
    /// # Errors
    /// Fails if the program was built without it or there is none, with what to do.
    pub fn open(self) -> Result<Option<String>, ModelError> {
        self.check()?;
        #[cfg(feature = "cuda")]
        if self == Self::Cuda {
            return crate::cuda::describe().map(Some).map_err(crate::cuda::CudaError::into_setting);
        }
        Ok(None)
    }

    /// Returns the memory of the device in bytes; `None` if unknown: for the CPU, without the
    /// feature `cuda`, and without a device.
    pub fn memory(self) -> Option<u64> {
        #[cfg(feature = "cuda")]
        if self == Self::Cuda {
            return crate::cuda::total_memory().ok().map(|bytes| bytes as u64);
        }
        None
    }

    /// Rejects a device that this program was built without. Whether there is one is seen when it is opened.
    ///
    /// # Errors
    /// Returns [`ModelError::Setting`] for CUDA in a program that was built without the feature `cuda`.
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
