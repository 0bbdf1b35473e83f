//! The device that a model runs on.

use serde::{Deserialize, Serialize};

use crate::ModelError;

/// The device that a model runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// CPU, computing in `f32`; the reference implementation.
    #[default]
    Cpu,
    /// NVIDIA GPU with `bfloat16` matrix products; accumulation and master weights are `f32`.
    /// Requires a build with the feature `cuda`.
    Cuda,
}

impl Device {
    /// Rejects a device that this build does not support. Whether a GPU exists is checked only when
    /// it is opened.
    ///
    /// # Errors
    /// Returns [`ModelError::Setting`] for CUDA if the feature `cuda` is off.
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
