//! Building blocks for small networks such as TurnRD.
//!
//! Functions take row-major slices and are generic over [`Real`]: `f32` for training, `f64` for
//! gradient checks ([`crate::testing`]). Sums always use [`LANES`] partial sums, whatever the CPU's
//! vector width.
//!
//! ```
//! use turnwise_model::layers::{Accumulate, linear};
//!
//! // y = x W^T + b for one row of two inputs and three outputs.
//! let (x, weight, bias) = ([1.0f32, 2.0], [1.0, 0.0, 0.0, 1.0, 1.0, 1.0], [0.5, 0.0, 0.0]);
//! let mut y = [0.0; 3];
//! linear(&x, &weight, Some(&bias), &mut y, Accumulate::Set, [1, 2, 3]);
//! assert_eq!(y, [1.5, 2.0, 3.0]);
//! ```

use crate::Real;
use crate::ops::linear as ops;

pub use crate::ops::dispatch::{LANES, Loop, add_assign, dot, fold, vectorised};
pub use crate::ops::gradients::sum_gradients;
pub use crate::ops::layer_norm::{layer_norm, layer_norm_backward};
pub use crate::ops::linear::{Accumulate, View, ViewMut, linear_backward_bias, matmul};
pub use crate::ops::softmax::{softmax, softmax_rows, softmax_rows_backward};
pub use crate::weights::TensorList;

/// Computes `y = x W^T (+ bias)`, or `y += x W^T (+ bias)` with [`Accumulate::Add`]. `x` is
/// `[rows, inputs]`, `weight` is `[outputs, inputs]`, and `shape` is `[rows, inputs, outputs]`.
///
/// # Panics
/// Panics if a slice is too short for the shape.
pub fn linear<T: Real>(
    x: &[T],
    weight: &[T],
    bias: Option<&[T]>,
    y: &mut [T],
    accumulate: Accumulate,
    shape: [usize; 3],
) {
    ops::linear(None, x, weight, bias, y, accumulate, shape);
}

/// Computes the gradient `d_x = d_y W` of [`linear`]'s input, or `d_x += d_y W`.
///
/// # Panics
/// Panics if a slice is too short for the shape.
pub fn linear_backward_input<T: Real>(
    d_y: &[T],
    weight: &[T],
    d_x: &mut [T],
    accumulate: Accumulate,
    shape: [usize; 3],
) {
    ops::linear_backward_input(None, d_y, weight, d_x, accumulate, shape);
}

/// Adds the gradient of [`linear`]'s weight, `d_W += d_y^T x`.
///
/// # Panics
/// Panics if a slice is too short for the shape.
pub fn linear_backward_weight<T: Real>(d_y: &[T], x: &[T], d_weight: &mut [T], shape: [usize; 3]) {
    ops::linear_backward_weight(None, d_y, x, d_weight, shape);
}
