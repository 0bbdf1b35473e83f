//! Matrix products with operands rounded to bf16 and sums in f32.
//!
//! Operands are packed into panels of tiles ([`tiles`]), which a kernel multiplies on AMX tiles
//! ([`amx`]) or with AVX-512 dot products ([`dot`]). The order of sums depends only on the shapes,
//! so each kernel's results are reproducible to the bit; the two kernels round differently.

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
