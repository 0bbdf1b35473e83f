use serde::{Deserialize, Serialize};

use crate::ModelError;

/// The device that a model runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// CPU in `f32`; the reference implementation.
    #[default]
    Cpu,
    /// NVIDIA GPU: `bfloat16` matrix products, `f32` accumulation and master weights. Requires the
    /// build feature `cuda`.
    Cuda,
}

impl Device {
    /// Rejects a device that this build does not support; whether a GPU exists is checked later.
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
