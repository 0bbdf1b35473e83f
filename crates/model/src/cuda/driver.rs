//! The interface of a device. A GPU answers it, and in the tests a CPU that runs the same
//! kernels' source.

use super::CudaError;

/// An address in the device's memory.
pub(crate) type Address = u64;

/// The sizes that kernels are compiled for: one module a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    /// Width of the residual stream.
    pub(crate) hidden: usize,
    /// Width of a head.
    pub(crate) head: usize,
}

/// A kernel's arguments, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument {
    /// An address; 0 for a part that is absent.
    At(Address),
    /// A C `int`.
    Int(i32),
    /// A C `long long`.
    Long(i64),
    /// A C `float`.
    Float(f32),
}

impl Argument {
    /// Its bytes at the low end of a word, where a kernel reads them through a pointer.
    pub(crate) fn word(self) -> u64 {
        match self {
            Self::At(address) => address,
            Self::Int(value) => u64::from(value as u32),
            Self::Long(value) => value as u64,
            Self::Float(value) => u64::from(value.to_bits()),
        }
    }
}

/// One launch.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    /// The module, from [`Driver::module`].
    pub(crate) module: usize,
    /// The kernel's name.
    pub(crate) kernel: &'static str,
    /// Blocks.
    pub(crate) grid: [u32; 3],
    /// Threads of a block.
    pub(crate) block: [u32; 3],
    /// Bytes of shared memory beyond what the kernel names itself.
    pub(crate) shared: u32,
    /// Arguments.
    pub(crate) arguments: &'a [Argument],
}

/// A row-major matrix of bfloat16 in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix {
    /// Its first number.
    pub(crate) at: Address,
    /// Elements from a row to the next.
    pub(crate) stride: usize,
    /// True if the product sees it transposed.
    pub(crate) transposed: bool,
}

/// The destination of a product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// Its first number.
    pub(crate) at: Address,
    /// Elements from a row to the next.
    pub(crate) stride: usize,
    /// True if it is f32, else bfloat16.
    pub(crate) wide: bool,
}

/// `c = alpha a b + beta c` with sums in f32; `a` is `[m, k]`, `b` `[k, n]`, `c` `[m, n]`, as seen.
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

/// A device. Operations run in the order of their calls; only [`Driver::download`] waits.
///
/// Addresses come only from [`Driver::allocate`]; [`super::memory::Buffer`] keeps them alive.
pub(crate) trait Driver: Send + Sync {
    /// Returns the device, in words.
    fn name(&self) -> &str;
    /// Its multiprocessors.
    fn multiprocessors(&self) -> usize;
    /// Free and total memory in bytes.
    fn memory(&self) -> Result<[usize; 2], CudaError>;
    /// Returns the memory of its own, on 256 bytes at least, with anything in it.
    fn allocate(&self, bytes: usize) -> Result<Address, CudaError>;
    /// Frees memory after all earlier operations.
    fn free(&self, at: Address);
    /// Host to device.
    fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), CudaError>;
    /// Copies from device to host after all earlier operations.
    fn download(&self, from: Address, bytes: &mut [u8]) -> Result<(), CudaError>;
    /// Device to device.
    fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<(), CudaError>;
    /// Sets bytes to zero.
    fn clear(&self, at: Address, bytes: usize) -> Result<(), CudaError>;
    /// Returns the kernels for a shape, compiled at the first call.
    fn module(&self, shape: Shape) -> Result<usize, CudaError>;
    /// Runs a kernel.
    fn launch(&self, launch: &Launch<'_>) -> Result<(), CudaError>;
    /// Runs a product.
    fn multiply(&self, product: &Product) -> Result<(), CudaError>;
    /// From now on launches, products, copies and clears of this thread are noted and not run. Called through
    /// [`Recorder`], which ends it in any case.
    fn record(&self) -> Result<(), CudaError>;
    /// Ends [`Driver::record`]; the recording can be replayed.
    fn finish_recording(&self) -> Result<usize, CudaError>;
    /// Runs a recording.
    fn replay(&self, recording: usize) -> Result<(), CudaError>;
    /// Forgets a recording.
    fn forget(&self, recording: usize);
}

/// A recording under way. One that is dropped before it is finished, because a launch failed or a panic passes, is ended
/// and forgotten: else this thread's work would be noted and never done, and other threads would wait for their turn.
pub(crate) struct Recorder<'a> {
    driver: &'a dyn Driver,
    finished: bool,
}

impl<'a> Recorder<'a> {
    /// Begins.
    pub(crate) fn begin(driver: &'a dyn Driver) -> Result<Self, CudaError> {
        driver.record()?;
        Ok(Self { driver, finished: false })
    }

    /// Ends the recording and returns its number, for replays.
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
