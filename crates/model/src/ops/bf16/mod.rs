//! Matrix products with operands rounded to bf16 and sums in f32.
//!
//! | file | subject |
//! |---|---|
//! | `amx.rs` | AMX tiles |
//! | `attention.rs` | causal grouped-query attention with bf16 products |
//! | `attention_rows.rs` | softmax and its gradient on blocks of scores |
//! | `dot.rs` | AVX-512 dot products (`vdpbf16ps`), for CPUs without AMX tiles |
//! | `packed.rs` | a right operand that is packed once and used in many products |
//! | `product.rs` | splits a matrix product into blocks |
//! | `tiles.rs` | packs operands as panels of bf16 tiles |
//!
//! Both operands are rounded and packed block by block into panels of tiles ([`tiles`]). A kernel
//! then multiplies pairs of panels on AMX tiles ([`amx`]) or with AVX-512 dot products ([`dot`]).
//! The order of sums depends only on the shapes, so each kernel's results are reproducible to the
//! bit. The two kernels round sums differently.

mod amx;
pub(crate) mod attention;
mod attention_rows;
mod dot;
mod packed;
mod product;
mod tiles;

pub(crate) use packed::PackedRight;
#[cfg(test)]
pub(crate) use product::kernels;
pub(crate) use product::{Kernel, product};
