//! The device that a process's learners and engines share, and its matrix products.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::CudaError;
use super::driver::{Driver, Matrix, Output, Product};
use super::gpu::Gpu;
use super::memory::{Bf16, Part};

/// Returns this process's device: number `LOCAL_RANK` (default 0) among the visible ones.
pub(crate) fn device() -> Result<Arc<dyn Driver>, CudaError> {
    static OPENED: OnceLock<Mutex<Option<Arc<dyn Driver>>>> = OnceLock::new();
    let opened = OPENED.get_or_init(Mutex::default);
    let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = &*opened {
        return Ok(Arc::clone(device));
    }
    let rank = std::env::var("LOCAL_RANK").ok().and_then(|rank| rank.parse().ok()).unwrap_or(0);
    let device: Arc<dyn Driver> = Arc::new(Gpu::open(rank)?);
    *opened = Some(Arc::clone(&device));
    Ok(device)
}

/// Returns a description of the device.
///
/// # Errors
/// Fails if a CUDA library cannot be loaded, `LOCAL_RANK` matches no device, the compute capability
/// is below 8.0, or a driver call fails.
pub fn describe() -> Result<String, CudaError> {
    let device = device()?;
    let [free, total] = device.memory()?;
    Ok(format!(
        "{}, {} multiprocessors, {} of {} MiB free",
        device.name(),
        device.multiprocessors(),
        free >> 20,
        total >> 20
    ))
}

pub(crate) fn total_memory() -> Result<usize, CudaError> {
    let [_, total] = device()?.memory()?;
    Ok(total)
}

pub(crate) fn matrix(part: Part<Bf16>, stride: usize) -> Matrix {
    Matrix { at: part.at, stride, transposed: false }
}

impl Matrix {
    pub(crate) fn t(self) -> Self {
        Self { transposed: !self.transposed, ..self }
    }
}

pub(crate) fn wide(part: Part<f32>, stride: usize) -> Output {
    Output { at: part.at, stride, wide: true }
}

pub(crate) fn narrow(part: Part<Bf16>, stride: usize) -> Output {
    Output { at: part.at, stride, wide: false }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accumulate {
    Set,
    Add,
}

/// Computes `c = alpha a b` or `c += alpha a b` with `[m, k, n]`. If a dimension is 0, `c` is
/// unchanged.
pub(crate) fn multiply(
    driver: &dyn Driver,
    [a, b]: [Matrix; 2],
    c: Output,
    [m, k, n]: [usize; 3],
    into: Accumulate,
    alpha: f32,
) -> Result<(), CudaError> {
    if m == 0 || n == 0 || k == 0 {
        return Ok(());
    }
    let beta = if into == Accumulate::Add { 1.0 } else { 0.0 };
    driver.multiply(&Product { a, b, c, m, n, k, alpha, beta })
}
