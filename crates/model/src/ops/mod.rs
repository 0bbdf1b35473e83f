//! The differentiable operations of a decoder, each with its hand-written backward.
//!
//! All of them work on row-major slices and are generic over [`Real`]: training runs in `f32`, the
//! tests check every backward against finite differences in `f64`. Loops are written over fixed lanes
//! and compiled for the widest vectors the processor has ([`dispatch::vectorised`]); as the lanes are
//! fixed, the sums do not depend on that width.

#![expect(clippy::inline_always, reason = "a loop is compiled for wider vectors only where it is inlined")]

pub(crate) mod attention;
#[cfg_attr(not(target_arch = "x86_64"), path = "bf16_elsewhere.rs")]
pub(crate) mod bf16;
pub(crate) mod dispatch;
pub(crate) mod divergence;
pub(crate) mod linear;
pub(crate) mod loss_head;
pub(crate) mod mlp;
pub(crate) mod norm;
mod real;
pub(crate) mod rope;

pub use real::Real;
