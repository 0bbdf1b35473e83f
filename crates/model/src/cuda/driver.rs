//! Device interface, implemented by a GPU and by an emulator for tests.

use super::CudaError;

pub(crate) type Address = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) hidden: usize,
    pub(crate) head: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument {
    /// A device address; 0 for an absent buffer.
    At(Address),
    Int(i32),
    Long(i64),
    Float(f32),
}

impl Argument {
    /// Returns the value in the low bytes of a 64-bit word; kernel launches take a pointer to this
    /// word.
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
    pub(crate) stride: usize,
    pub(crate) transposed: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) at: Address,
    pub(crate) stride: usize,
    /// True if the elements are f32, false if they are bfloat16.
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

/// A device. Operations run in call order, and only [`Driver::download`] waits for them.
pub(crate) trait Driver: Send + Sync {
    fn name(&self) -> &str;
    fn multiprocessors(&self) -> usize;
    fn memory(&self) -> Result<[usize; 2], CudaError>;
    /// Allocates uninitialized memory, aligned to 256 bytes or more.
    fn allocate(&self, bytes: usize) -> Result<Address, CudaError>;
    /// Frees memory once all earlier operations have run.
    fn free(&self, at: Address);
    fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), CudaError>;
    /// Copies to the host once all earlier operations have run.
    fn download(&self, from: Address, bytes: &mut [u8]) -> Result<(), CudaError>;
    fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<(), CudaError>;
    fn clear(&self, at: Address, bytes: usize) -> Result<(), CudaError>;
    fn module(&self, shape: Shape) -> Result<usize, CudaError>;
    fn launch(&self, launch: &Launch<'_>) -> Result<(), CudaError>;
    fn multiply(&self, product: &Product) -> Result<(), CudaError>;
    /// Records this thread's kernel launches, matrix products, copies and clears instead of running
    /// them. Called by [`Recorder`], which always ends the recording.
    fn record(&self) -> Result<(), CudaError>;
    fn finish_recording(&self) -> Result<usize, CudaError>;
    fn replay(&self, recording: usize) -> Result<(), CudaError>;
    fn forget(&self, recording: usize);
}

/// A recording in progress, ended and freed on drop. After an error or a panic, a recording left
/// open would block this thread's work and other threads forever.
pub(crate) struct Recorder<'a> {
    driver: &'a dyn Driver,
    finished: bool,
}

impl<'a> Recorder<'a> {
    pub(crate) fn begin(driver: &'a dyn Driver) -> Result<Self, CudaError> {
        driver.record()?;
        Ok(Self { driver, finished: false })
    }

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
