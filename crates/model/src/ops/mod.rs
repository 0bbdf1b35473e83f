//! The differentiable operations of a decoder, with handwritten backward passes.
//!
//! | file | subject |
//! |---|---|
//! | `attention.rs` | causal grouped-query attention over packed sequences, by blocks of queries |
//! | `bf16/` | matrix products of elements rounded to bf16, with sums in f32 |
//! | `bf16_elsewhere.rs` | stub of `bf16` on CPUs other than x86-64 |
//! | `dispatch.rs` | vectorised loops and reductions |
//! | `divergence.rs` | Kullback-Leibler divergence of two rows of logits |
//! | `layer_norm.rs` | layer norm |
//! | `linear.rs` | matrix products on strided views, and the linear layer |
//! | `loss_head.rs` | log-probs and entropies of logits |
//! | `mlp.rs` | activations of the MLP: SwiGLU, QuickGELU |
//! | `norm.rs` | root mean square norm |
//! | `real.rs` | number types `f32` and `f64` |
//! | `rope.rs` | rotary position embedding |
//! | `softmax.rs` | softmax of rows |
//!
//! Operations use row-major slices and are generic over [`Real`]: training runs in `f32`, and tests
//! check every backward against finite differences in `f64`. Loops run over a fixed number of lanes
//! ([`dispatch::vectorised`]), so sums do not depend on the CPU's vector width.

#![expect(clippy::inline_always, reason = "a loop is compiled for wider vectors only where it is inlined")]

pub(crate) mod attention;
#[cfg_attr(not(target_arch = "x86_64"), path = "bf16_elsewhere.rs")]
pub(crate) mod bf16;
pub(crate) mod dispatch;
pub(crate) mod divergence;
pub(crate) mod layer_norm;
pub(crate) mod linear;
pub(crate) mod loss_head;
pub(crate) mod mlp;
pub(crate) mod norm;
mod real;
pub(crate) mod rope;
pub(crate) mod softmax;

pub use real::Real;
