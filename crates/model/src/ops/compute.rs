use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ops::bf16::Kernel;
use crate::ops::linear::{Accumulate, linear, linear_backward_input, linear_backward_weight};

/// Precision of matrix products. Weights, gradients, moments and sums are always `f32`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compute {
    /// Single precision; the reference implementation.
    #[default]
    F32,
    /// Rounds operands to bf16 (8 bits of mantissa) and sums in `f32`: several times as fast as
    /// `f32` on CPUs with AMX tiles. Attention's softmax, norms and the loss stay `f32`.
    ///
    /// AMX tiles and AVX-512 vectors round sums differently, so results are bit-identical only
    /// among CPUs that use the same one of the two.
    Bf16,
}

/// Instructions that a [`Compute`] uses on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComputePath {
    /// `f32` products.
    F32,
    /// bf16 products on AMX tiles.
    Tiles,
    /// bf16 products on AVX-512 vectors.
    Dots,
}

impl Compute {
    pub(crate) fn kernel(self) -> Option<Kernel> {
        match self {
            Self::F32 => None,
            Self::Bf16 => Kernel::best(),
        }
    }

    /// Returns the instructions used on this machine.
    pub fn path(self) -> ComputePath {
        self.kernel().map_or(ComputePath::F32, Kernel::path)
    }

    /// Computes `y = x W^T` for `x` `[rows, inputs]` and `weight` `[outputs, inputs]`. `shape` is
    /// `[rows, inputs, outputs]`.
    ///
    /// # Panics
    /// Panics if a slice is shorter than its shape requires.
    pub fn linear(self, x: &[f32], weight: &[f32], y: &mut [f32], shape: [usize; 3]) {
        linear(self.kernel(), x, weight, None, y, Accumulate::Set, shape);
    }

    /// Computes [`Compute::linear`]'s gradients, `d_x = d_y W` and `d_W += d_y^T x`.
    ///
    /// # Panics
    /// Panics if a slice is shorter than its shape requires.
    pub fn linear_backward(
        self,
        d_y: &[f32],
        x: &[f32],
        weight: &[f32],
        d_x: &mut [f32],
        d_weight: &mut [f32],
        shape: [usize; 3],
    ) {
        linear_backward_input(self.kernel(), d_y, weight, d_x, Accumulate::Set, shape);
        linear_backward_weight(self.kernel(), d_y, x, d_weight, shape);
    }

    /// Returns a description of the fallback if this machine lacks the setting's fastest
    /// instructions, else `None`.
    pub fn fallback(self) -> Option<String> {
        let path = self.path();
        match (self, path) {
            (Self::F32, _) | (Self::Bf16, ComputePath::Tiles) => None,
            (Self::Bf16, _) => {
                Some(format!("compute = \"bf16\": this machine has no AMX tiles; using {path}"))
            }
        }
    }
}

impl fmt::Display for ComputePath {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::F32 => "f32 products",
            Self::Tiles => "bf16 products on AMX tiles",
            Self::Dots => "bf16 products on AVX-512 vectors",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_read_and_written_by_its_name() {
        for (compute, name) in [(Compute::F32, "\"f32\""), (Compute::Bf16, "\"bf16\"")] {
            assert_eq!(serde_json::to_string(&compute).unwrap(), name);
            assert_eq!(serde_json::from_str::<Compute>(name).unwrap(), compute);
        }
        assert!(serde_json::from_str::<Compute>("\"f16\"").is_err());
        assert_eq!(Compute::default(), Compute::F32);
    }

    #[test]
    fn only_what_the_machine_lacks_has_a_fallback() {
        assert_eq!((Compute::F32.path(), Compute::F32.fallback()), (ComputePath::F32, None));
        let fallback = Compute::Bf16.fallback();
        match Compute::Bf16.path() {
            ComputePath::Tiles => assert_eq!(fallback, None),
            path => assert!(fallback.unwrap().ends_with(&path.to_string())),
        }
    }
}
