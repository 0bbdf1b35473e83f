//! The differentiable operations of a decoder, with handwritten backward passes.
//!
//! | file | subject |
//! |---|---|
//! | `attention.rs` | causal grouped-query attention over packed sequences, in blocks of queries |
//! | `bf16/` | matrix products with operands rounded to bf16 and sums in f32 |
//! | `bf16_elsewhere.rs` | stub for targets other than x86-64, which have no bf16 products |
//! | `compute.rs` | precision of matrix products |
//! | `dispatch.rs` | loops compiled for the CPU's widest vectors, and reductions with fixed lanes |
//! | `divergence.rs` | Kullback-Leibler divergence between two rows of logits, and its gradient |
//! | `gradients.rs` | sum of the lanes' gradients |
//! | `layer_norm.rs` | layer norm |
//! | `linear.rs` | matrix products on strided views, and the linear layer |
//! | `loss_head.rs` | log-probs and entropies of logits |
//! | `mlp.rs` | activations of the MLP: SwiGLU, QuickGELU |
//! | `norm.rs` | RMS norm |
//! | `real.rs` | number types `f32` and `f64` |
//! | `rope.rs` | rotary position embedding |
//! | `softmax.rs` | softmax of rows |
//!
//! Operations use row-major slices and are generic over [`Real`]. Training runs in `f32`; tests
//! check every backward pass against finite differences in `f64`. Loops use a fixed number of lanes
//! ([`dispatch::vectorised`]), so sums do not depend on the CPU's vector width.

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

/// Ensures that a buffer has at least this length. Growing discards the contents.
pub(crate) fn grow<T: Real>(buffer: &mut Vec<T>, len: usize) {
    if buffer.len() < len {
        *buffer = Vec::new();
        *buffer = vec![T::ZERO; len];
    }
}
