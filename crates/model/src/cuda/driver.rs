//! Device interface, implemented by a GPU and, in tests, by a CPU that runs the same kernel source.

use super::CudaError;

pub(crate) type Address = u64;

/// Dimensions that kernels are compiled for; there is one module per shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) hidden: usize,
    pub(crate) head: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument {
    /// A device address; 0 if the buffer is absent.
    At(Address),
    /// A C `int`.
    Int(i32),
    /// A C `long long`.
    Long(i64),
    /// A C `float`.
    Float(f32),
}

impl Argument {
    /// Returns the value's bytes in the low end of a word. Kernels read the argument through a
    /// pointer to it.
    pub(crate) fn word(self) -> u64 {
        match self {
            Self::At(address) => address,
            Self::Int(value) => u64::from(value as u32),
            Self::Long(value) => value as u64,
            Self::Float(value) => u64::from(value.to_bits()),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Launch<'a> {
    /// Module, from [`Driver::module`].
    pub(crate) module: usize,
    pub(crate) kernel: &'static str,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) arguments: &'a [Argument],
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix {
    pub(crate) at: Address,
    /// Elements between rows.
    pub(crate) stride: usize,
    pub(crate) transposed: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) at: Address,
    pub(crate) stride: usize,
    /// True for f32; false for bfloat16.
    pub(crate) wide: bool,
}

/// `c = alpha a b + beta c`, accumulated in f32. After transposition, `a` is `[m, k]`, `b` is
/// `[k, n]` and `c` is `[m, n]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub(crate) a: Matrix,
    pub(crate) b: Matrix,
    pub(crate) c: Output,
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) alpha: f32,
    pub(crate) beta: f32,
}

/// A device. Operations run in call order; only [`Driver::download`] waits for them to finish.
///
/// Addresses come from [`Driver::allocate`]; [`super::memory::Buffer`] keeps the memory alive.
pub(crate) trait Driver: Send + Sync {
    fn name(&self) -> &str;
    fn multiprocessors(&self) -> usize;
    fn memory(&self) -> Result<[usize; 2], CudaError>;
    /// Allocates uninitialized memory, aligned to at least 256 bytes.
    fn allocate(&self, bytes: usize) -> Result<Address, CudaError>;
    /// Frees memory once all earlier operations have finished.
    fn free(&self, at: Address);
    fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), CudaError>;
    /// Copies from device to host once all earlier operations have finished.
    fn download(&self, from: Address, bytes: &mut [u8]) -> Result<(), CudaError>;
    fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<(), CudaError>;
    fn clear(&self, at: Address, bytes: usize) -> Result<(), CudaError>;
    /// Returns the kernels for a shape, compiling them on the first call.
    fn module(&self, shape: Shape) -> Result<usize, CudaError>;
    fn launch(&self, launch: &Launch<'_>) -> Result<(), CudaError>;
    fn multiply(&self, product: &Product) -> Result<(), CudaError>;
    /// Starts recording this thread's kernel launches, matrix products, copies and clears instead
    /// of running them. Called by [`Recorder`], which always ends the recording.
    fn record(&self) -> Result<(), CudaError>;
    /// Ends [`Driver::record`] and returns the recording's id for replays.
    fn finish_recording(&self) -> Result<usize, CudaError>;
    fn replay(&self, recording: usize) -> Result<(), CudaError>;
    fn forget(&self, recording: usize);
}

/// An active recording. Dropping an unfinished recording, after an error or a panic, ends and frees
/// it. Otherwise, this thread's work would never run and other threads would wait forever.
pub(crate) struct Recorder<'a> {
    driver: &'a dyn Driver,
    finished: bool,
}

impl<'a> Recorder<'a> {
    pub(crate) fn begin(driver: &'a dyn Driver) -> Result<Self, CudaError> {
        driver.record()?;
        Ok(Self { driver, finished: false })
    }

    /// Ends the recording and returns its id for replays.
    pub(crate) fn finish(mut self) -> Result<usize, CudaError> {
        self.finished = true;
        self.driver.finish_recording()
    }
}

impl Drop for Recorder<'_> {
    fn drop(&mut self) {
        if !self.finished
            && let Ok(recording) = self.driver.finish_recording()
        {
            self.driver.forget(recording);
        }
    }
}
