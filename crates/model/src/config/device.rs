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
