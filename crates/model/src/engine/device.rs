use crate::{Device, ModelError};

impl Device {
    /// Opens the device and returns its description; `None` for the CPU.
    ///
    /// # Errors
    /// Fails if this build or machine lacks the device.
    pub fn open(self) -> Result<Option<String>, ModelError> {
        self.check()?;
        #[cfg(feature = "cuda")]
        if self == Self::Cuda {
            return crate::cuda::describe().map(Some).map_err(crate::cuda::CudaError::into_setting);
        }
        Ok(None)
    }

    /// Returns the device's memory in bytes; `None` for the CPU or a missing device.
    pub fn memory(self) -> Option<u64> {
        #[cfg(feature = "cuda")]
        if self == Self::Cuda {
            return crate::cuda::total_memory().ok().map(|bytes| bytes as u64);
        }
        None
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
