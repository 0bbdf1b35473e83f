//! Matrix products of numbers rounded to bf16, with sums in f32.
//!
//! Both operands are packed into panels of tiles ([`tiles`]), block by block, with the rounding and any
//! transposition on the way; a kernel then multiplies a left by a right panel: on AMX tiles ([`amx`]) or
//! with the dot products of AVX-512 ([`dot`]). The order of the sums depends on the shapes alone, so the
//! same kernel gives the same bits; the two kernels round their sums differently.

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
