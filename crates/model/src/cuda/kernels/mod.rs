//! Typed wrappers that check buffer sizes and launch CUDA kernels. Each module wraps the kernels of
//! the `.cu` file with the same name.

macro_rules! arguments {
    ($($argument:expr),* $(,)?) => { &[$($crate::cuda::driver::Argument::from($argument)),*] };
}

mod attention;
mod decode;
mod elementwise;
mod head;
mod norm;
mod qkv;

use std::sync::Arc;

use super::CudaError;
use super::driver::{Argument, Driver, Launch, Shape};
use super::memory::{Bf16, Part, Plain};
use crate::ModelConfig;

pub(crate) const TILE: usize = 64;
/// Maximum number of query heads per key head.
pub(crate) const MOST_SHARED: usize = 16;
pub(crate) const CHOICE_CHUNK: usize = 4096;
/// Number of blocks in kernels that write partial sums over rows.
pub(crate) const PARTIAL_BLOCKS: usize = 256;

#[derive(Clone)]
pub(crate) struct Kernels {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) shape: Shape,
    module: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    pub(crate) queries: usize,
    pub(crate) keys: usize,
}

#[derive(Clone, Copy)]
pub(crate) struct Preparation {
    pub(crate) bias: Option<Part<Bf16>>,
    pub(crate) q_norm: Option<Part<Bf16>>,
    pub(crate) k_norm: Option<Part<Bf16>>,
    pub(crate) epsilon: f32,
    pub(crate) heads: Heads,
}

fn at<T>(part: Option<Part<T>>) -> Argument {
    Argument::At(part.map_or(0, |part| part.at))
}

impl<T> From<Part<T>> for Argument {
    fn from(part: Part<T>) -> Self {
        Self::At(part.at)
    }
}

impl From<usize> for Argument {
    fn from(value: usize) -> Self {
        Self::Int(i32::try_from(value).unwrap_or(i32::MAX))
    }
}

impl From<f32> for Argument {
    fn from(value: f32) -> Self {
        Self::Float(value)
    }
}

fn long(value: usize) -> Argument {
    Argument::Long(value as i64)
}

/// Panics if a buffer is so small that the kernel would write out of bounds.
fn hold<T: Plain>(part: Part<T>, rows: usize, width: usize) {
    assert!(part.len >= rows * width, "{} numbers, {rows} rows of {width} expected", part.len);
}

fn line(threads: u32) -> [u32; 3] {
    [threads, 1, 1]
}

impl Kernels {
    pub(crate) fn new(driver: &Arc<dyn Driver>, config: &ModelConfig) -> Result<Self, CudaError> {
        let fail = |key: &'static str, reason: String| Err(CudaError::Unsupported { key, reason });
        for (key, value) in
            [("hidden_size", config.hidden_size), ("intermediate_size", config.intermediate_size)]
        {
            if !value.is_multiple_of(16) {
                return fail(key, format!("{value} is not a multiple of 16, which the kernels work in"));
            }
        }
        let head = config.head_dim;
        if !head.is_multiple_of(16) || head > 128 {
            return fail(
                "head_dim",
                format!("{head} is not 16, 32, 48, ..., 128, which the kernels work with"),
            );
        }
        let shared = config.num_attention_heads / config.num_key_value_heads;
        if shared > MOST_SHARED {
            let reason = format!("{shared} query heads share a key head, and at most {MOST_SHARED} may");
            return fail("num_key_value_heads", reason);
        }
        let shape = Shape { hidden: config.hidden_size, head };
        Ok(Self { driver: Arc::clone(driver), shape, module: driver.module(shape)? })
    }

    fn launch(
        &self,
        kernel: &'static str,
        grid: [usize; 3],
        block: [u32; 3],
        shared: usize,
        arguments: &[Argument],
    ) -> Result<(), CudaError> {
        if grid.contains(&0) {
            return Ok(());
        }
        let grid = grid.map(|blocks| blocks as u32);
        self.driver.launch(&Launch {
            module: self.module,
            kernel,
            grid,
            block,
            shared: shared as u32,
            arguments,
        })
    }

    fn rows(
        &self,
        kernel: &'static str,
        rows: usize,
        threads: u32,
        arguments: &[Argument],
    ) -> Result<(), CudaError> {
        self.launch(kernel, [rows, 1, 1], line(threads), 0, arguments)
    }

    /// Launches one thread per item, in blocks of 256.
    fn each(&self, kernel: &'static str, count: usize, arguments: &[Argument]) -> Result<(), CudaError> {
        self.launch(kernel, [count.div_ceil(256), 1, 1], line(256), 0, arguments)
    }

    fn shared_rows(&self, rows: usize) -> usize {
        rows * (self.shape.head + 8) * 2
    }
}
