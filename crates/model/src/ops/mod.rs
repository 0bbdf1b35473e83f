//! The differentiable operations of a decoder, on row-major slices, with handwritten backward
//! passes.
//!
//! Training runs in `f32`; tests check each backward pass against finite differences in `f64`. Sums
//! use a fixed number of lanes ([`dispatch::vectorised`]), so they do not depend on the CPU's
//! vector width.

#![expect(clippy::inline_always, reason = "a loop is compiled for wider vectors only where it is inlined")]

pub(crate) mod attention;
#[cfg_attr(not(target_arch = "x86_64"), path = "bf16_elsewhere.rs")]
pub(crate) mod bf16;
pub(crate) mod compute;
pub(crate) mod dispatch;
pub(crate) mod divergence;
pub(crate) mod gradients;
pub(crate) mod layer_norm;
pub(crate) mod linear;
pub(crate) mod loss_head;
pub(crate) mod mlp;
pub(crate) mod norm;
mod real;
pub(crate) mod rope;
pub(crate) mod softmax;

pub use real::Real;

/// Makes a buffer at least this long; growing discards the contents.
pub(crate) fn grow<T: Real>(buffer: &mut Vec<T>, len: usize) {
    if buffer.len() < len {
        *buffer = Vec::new();
        *buffer = vec![T::ZERO; len];
    }
}
