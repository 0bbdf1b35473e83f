//! An NVIDIA GPU through the driver API.
#![expect(unsafe_code, reason = "the driver and cuBLAS are C libraries")]

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{ThreadId, current};

use super::CudaError;
use super::compile::binary;
use super::driver::{Address, Driver, Launch, Product, Shape};
use super::library::{
    BF16, BlasLibrary, CAPABILITY_MAJOR, CAPABILITY_MINOR, CAPTURE_THREAD_LOCAL, COMPUTE_F32,
    DEFAULT_ALGORITHM, DYNAMIC_SHARED, DriverLibrary, F32, F32_REDUCTION, Handle, MULTIPROCESSORS,
    NON_BLOCKING, OUT_OF_MEMORY, blas, driver,
};

/// Oldest architecture with bfloat16 products and asynchronous copies.
const OLDEST: c_int = 80;
/// cuBLAS workspace in bytes. A fixed workspace makes products reproducible and lets graphs capture
/// products.
const WORKSPACE: usize = 32 << 20;
const PLAIN_SHARED: u32 = 48 << 10;

/// A device with its primary context, which PyTorch and other libraries share.
pub(crate) struct Gpu {
    driver: &'static DriverLibrary,
    blas: &'static BlasLibrary,
    name: String,
    architecture: String,
    multiprocessors: usize,
    context: Handle,
    main: Queue,
    /// Queue that captures the launches of the thread that is recording; other threads use `main`.
    recorder: Queue,
    recording: Mutex<Option<ThreadId>>,
    recorded: Condvar,
    state: Mutex<State>,
}

struct Queue {
    stream: Handle,
    /// cuBLAS handle; locked for each call, because it has state.
    products: Mutex<Handle>,
}

#[derive(Default)]
struct State {
    modules: Vec<Module>,
    graphs: Vec<Option<Handle>>,
}

struct Module {
    shape: Shape,
    handle: Handle,
    functions: HashMap<&'static str, Handle>,
}

impl Gpu {
    pub(crate) fn open(ordinal: usize) -> Result<Self, CudaError> {
        Self::with(driver()?, blas()?, ordinal)
    }

    pub(super) fn with(
        driver: &'static DriverLibrary,
        blas: &'static BlasLibrary,
        ordinal: usize,
    ) -> Result<Self, CudaError> {
        let check = |call, code| checked(driver, call, code);
        // SAFETY: this is the first driver call.
        check("cuInit", unsafe { (driver.init)(0) })
            .map_err(|error| CudaError::Device(format!("the driver finds no device ({error})")))?;
        let mut count = 0;
        // SAFETY: the out-pointer is valid.
        check("cuDeviceGetCount", unsafe { (driver.device_count)(&raw mut count) })?;
        if ordinal >= count as usize {
            return Err(CudaError::Device(format!(
                "device {ordinal} was asked for and there are {count}; see CUDA_VISIBLE_DEVICES and LOCAL_RANK"
            )));
        }
        let mut device = 0;
        // SAFETY: the out-pointer is valid.
        check("cuDeviceGet", unsafe { (driver.device)(&raw mut device, ordinal as c_int) })?;
        let mut name = [0u8; 128];
        // SAFETY: `name` has 128 bytes.
        check("cuDeviceGetName", unsafe { (driver.device_name)(name.as_mut_ptr().cast(), 128, device) })?;
        let name = CStr::from_bytes_until_nul(&name).map_or("?".into(), CStr::to_string_lossy).into_owned();
        let attribute = |which| {
            let mut value = 0;
            // SAFETY: the out-pointer is valid.
            let code = unsafe { (driver.device_attribute)(&raw mut value, which, device) };
            check("cuDeviceGetAttribute", code).map(|()| value)
        };
        let capability = attribute(CAPABILITY_MAJOR)? * 10 + attribute(CAPABILITY_MINOR)?;
        if capability < OLDEST {
            return Err(CudaError::Device(format!(
                "{name} has compute capability {}.{}, and 8.0 or newer is needed for bfloat16",
                capability / 10,
                capability % 10
            )));
        }
        let mut context = 0;
        // SAFETY: the out-pointer is valid; the context is never released.
        unsafe {
            check("cuDevicePrimaryCtxRetain", (driver.retain)(&raw mut context, device))?;
            check("cuCtxSetCurrent", (driver.set_current)(context))?;
        }
        Ok(Self {
            driver,
            blas,
            name,
            architecture: format!("sm_{capability}"),
            multiprocessors: attribute(MULTIPROCESSORS)? as usize,
            context,
            main: Queue::new(driver, blas)?,
            recorder: Queue::new(driver, blas)?,
            recording: Mutex::default(),
            recorded: Condvar::new(),
            state: Mutex::default(),
        })
    }

    fn queue(&self) -> &Queue {
        let recording = self.recording.lock().unwrap_or_else(PoisonError::into_inner);
        if *recording == Some(current().id()) { &self.recorder } else { &self.main }
    }

    fn end_recording(&self) {
        *self.recording.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.recorded.notify_one();
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), CudaError> {
        checked(self.driver, call, code)
    }

    /// Makes the context current for this thread; called before every driver call.
    fn enter(&self) -> Result<(), CudaError> {
        // SAFETY: the context is never released.
        self.check("cuCtxSetCurrent", unsafe { (self.driver.set_current)(self.context) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn function(&self, launch: &Launch<'_>) -> Result<Handle, CudaError> {
        let mut state = self.state();
        let module = &mut state.modules[launch.module];
        if let Some(&function) = module.functions.get(launch.kernel) {
            return Ok(function);
        }
        let missing = |reason: String| CudaError::Call { call: "cuModuleGetFunction", reason };
        let name = CString::new(launch.kernel).map_err(|error| missing(error.to_string()))?;
        let mut function = 0;
        // SAFETY: the module is never unloaded.
        let code = unsafe { (self.driver.function)(&raw mut function, module.handle, name.as_ptr()) };
        self.check("cuModuleGetFunction", code)?;
        if launch.shared > PLAIN_SHARED {
            // SAFETY: the function was just found; its shared memory size never changes.
            let code =
                unsafe { (self.driver.set_attribute)(function, DYNAMIC_SHARED, launch.shared as c_int) };
            self.check("cuFuncSetAttribute", code)?;
        }
        module.functions.insert(launch.kernel, function);
        Ok(function)
    }
}

impl Queue {
    fn new(driver: &DriverLibrary, blas: &BlasLibrary) -> Result<Self, CudaError> {
        let (mut stream, mut products, mut workspace) = (0, 0, 0);
        // SAFETY: the out-pointers are valid, and the workspace is never freed.
        unsafe {
            checked(driver, "cuStreamCreate", (driver.stream)(&raw mut stream, NON_BLOCKING))?;
            check_blas("cublasCreate", (blas.create)(&raw mut products))?;
            check_blas("cublasSetStream", (blas.set_stream)(products, stream))?;
            check_blas("cublasSetMathMode", (blas.set_math_mode)(products, F32_REDUCTION))?;
            checked(driver, "cuMemAlloc", (driver.allocate)(&raw mut workspace, WORKSPACE))?;
            check_blas("cublasSetWorkspace", (blas.set_workspace)(products, workspace, WORKSPACE))?;
        }
        Ok(Self { stream, products: Mutex::new(products) })
    }
}

fn checked(driver: &DriverLibrary, call: &'static str, code: c_int) -> Result<(), CudaError> {
    if code == 0 {
        return Ok(());
    }
    let mut text = std::ptr::null();
    // SAFETY: the out-pointer is valid; the driver sets null or a static string.
    let reason = unsafe {
        (driver.error_string)(code, &raw mut text);
        if text.is_null() { "unknown".into() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
    };
    Err(CudaError::Call { call, reason: format!("error {code}, {reason}") })
}

pub(super) fn check_blas(call: &'static str, code: c_int) -> Result<(), CudaError> {
    let meaning = match code {
        0 => return Ok(()),
        1 => "not initialised: no memory is left, or this cuBLAS is newer than the driver can run",
        3 => "no memory is left",
        7 => "an invalid value",
        8 => "the device's architecture is not supported",
        11 => "a mapping error",
        13 => "the execution failed",
        14 => "an internal error",
        15 => "not supported",
        _ => "unknown",
    };
    Err(CudaError::Call { call, reason: format!("status {code}, {meaning}") })
}

impl Driver for Gpu {
    fn name(&self) -> &str {
        &self.name
    }

    fn multiprocessors(&self) -> usize {
        self.multiprocessors
    }

    fn memory(&self) -> Result<[usize; 2], CudaError> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both out-pointers are valid.
        self.check("cuMemGetInfo", unsafe { (self.driver.memory_info)(&raw mut free, &raw mut total) })?;
        Ok([free, total])
    }

    fn allocate(&self, bytes: usize) -> Result<Address, CudaError> {
        self.enter()?;
        let mut at = 0;
        // SAFETY: the out-pointer is valid.
        let code = unsafe { (self.driver.allocate)(&raw mut at, bytes) };
        if code == OUT_OF_MEMORY {
            let [free, total] = self.memory()?;
            return Err(CudaError::Memory { wanted: bytes >> 20, free: free >> 20, total: total >> 20 });
        }
        self.check("cuMemAlloc", code)?;
        Ok(at)
    }

    fn free(&self, at: Address) {
        if self.enter().is_ok() {
            // SAFETY: allocated by `allocate`, freed once; the driver waits for work that uses it.
            // Errors here are those of earlier work, which the next call returns too.
            unsafe { (self.driver.free)(at) };
        }
    }

    fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), CudaError> {
        self.enter()?;
        // SAFETY: the driver has read pageable memory when it returns.
        let code = unsafe { (self.driver.upload)(to, bytes.as_ptr().cast(), bytes.len(), self.main.stream) };
        self.check("cuMemcpyHtoDAsync", code)
    }

    fn download(&self, from: Address, bytes: &mut [u8]) -> Result<(), CudaError> {
        self.enter()?;
        // SAFETY: `bytes` has room, and is not read before the stream finishes.
        let code =
            unsafe { (self.driver.download)(bytes.as_mut_ptr().cast(), from, bytes.len(), self.main.stream) };
        self.check("cuMemcpyDtoHAsync", code)?;
        // SAFETY: the stream is never destroyed.
        self.check("cuStreamSynchronize", unsafe { (self.driver.wait)(self.main.stream) })
    }

    fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<(), CudaError> {
        self.enter()?;
        // SAFETY: both ranges lie in buffers.
        self.check("cuMemcpyDtoDAsync", unsafe { (self.driver.copy)(to, from, bytes, self.queue().stream) })
    }

    fn clear(&self, at: Address, bytes: usize) -> Result<(), CudaError> {
        self.enter()?;
        // SAFETY: the range lies in a buffer.
        self.check("cuMemsetD8Async", unsafe { (self.driver.clear)(at, 0, bytes, self.queue().stream) })
    }

    fn module(&self, shape: Shape) -> Result<usize, CudaError> {
        if let Some(found) = self.state().modules.iter().position(|module| module.shape == shape) {
            return Ok(found);
        }
        let image = binary(shape, &self.architecture)?;
        self.enter()?;
        let mut handle = 0;
        // SAFETY: machine code from NVRTC, which the driver copies.
        self.check("cuModuleLoadData", unsafe {
            (self.driver.load)(&raw mut handle, image.as_ptr().cast())
        })?;
        let mut state = self.state();
        state.modules.push(Module { shape, handle, functions: HashMap::new() });
        Ok(state.modules.len() - 1)
    }

    fn launch(&self, launch: &Launch<'_>) -> Result<(), CudaError> {
        self.enter()?;
        let function = self.function(launch)?;
        let mut words: Vec<u64> = launch.arguments.iter().map(|argument| argument.word()).collect();
        let mut pointers: Vec<*mut c_void> =
            words.iter_mut().map(|word| std::ptr::from_mut(word).cast()).collect();
        let ([x, y, z], [bx, by, bz]) = (launch.grid, launch.block);
        // SAFETY: `kernels/`, the only caller, passes the kernel's arguments; the driver copies
        // them.
        let code = unsafe {
            let (arguments, stream) = (pointers.as_mut_ptr(), self.queue().stream);
            let none = std::ptr::null_mut();
            (self.driver.launch)(function, x, y, z, bx, by, bz, launch.shared, stream, arguments, none)
        };
        self.check(launch.kernel, code)
    }

    fn multiply(&self, product: &Product) -> Result<(), CudaError> {
        self.enter()?;
        let Product { a, b, c, m, n, k, alpha, beta } = *product;
        let products = self.queue().products.lock().unwrap_or_else(PoisonError::into_inner);
        // cuBLAS is column-major, so it computes c^T = b^T a^T. SAFETY: the operands lie in
        // buffers; alpha and beta are read before it returns.
        let code = unsafe {
            (self.blas.multiply)(
                *products,
                c_int::from(b.transposed),
                c_int::from(a.transposed),
                n as c_int,
                m as c_int,
                k as c_int,
                &raw const alpha,
                b.at,
                BF16,
                b.stride as c_int,
                a.at,
                BF16,
                a.stride as c_int,
                &raw const beta,
                c.at,
                if c.wide { F32 } else { BF16 },
                c.stride as c_int,
                COMPUTE_F32,
                DEFAULT_ALGORITHM,
            )
        };
        check_blas("cublasGemmEx", code)
    }

    fn record(&self) -> Result<(), CudaError> {
        self.enter()?;
        let mut recording = self.recording.lock().unwrap_or_else(PoisonError::into_inner);
        while recording.is_some() {
            recording = self.recorded.wait(recording).unwrap_or_else(PoisonError::into_inner);
        }
        // SAFETY: the stream is never destroyed.
        let code = unsafe { (self.driver.begin_capture)(self.recorder.stream, CAPTURE_THREAD_LOCAL) };
        let begun = self.check("cuStreamBeginCapture", code);
        match begun {
            Ok(()) => *recording = Some(current().id()),
            // Wake the next thread instead.
            Err(_) => self.recorded.notify_one(),
        }
        begun
    }

    fn finish_recording(&self) -> Result<usize, CudaError> {
        let entered = self.enter();
        let (mut graph, mut executable) = (0, 0);
        // SAFETY: the out-pointer is valid.
        let ended = unsafe { (self.driver.end_capture)(self.recorder.stream, &raw mut graph) };
        self.end_recording();
        entered?;
        self.check("cuStreamEndCapture", ended)?;
        // SAFETY: the out-pointer is valid; the executable does not need the graph.
        unsafe {
            let code = (self.driver.instantiate)(&raw mut executable, graph, 0);
            (self.driver.destroy_graph)(graph);
            self.check("cuGraphInstantiate", code)?;
        }
        let mut state = self.state();
        state.graphs.push(Some(executable));
        Ok(state.graphs.len() - 1)
    }

    fn replay(&self, recording: usize) -> Result<(), CudaError> {
        self.enter()?;
        let Some(graph) = self.state().graphs.get(recording).copied().flatten() else {
            let reason = format!("recording {recording} was forgotten");
            return Err(CudaError::Call { call: "cuGraphLaunch", reason });
        };
        // SAFETY: the executable graph is alive.
        self.check("cuGraphLaunch", unsafe { (self.driver.launch_graph)(graph, self.main.stream) })
    }

    fn forget(&self, recording: usize) {
        let graph = self.state().graphs.get_mut(recording).and_then(Option::take);
        if let (Some(graph), Ok(())) = (graph, self.enter()) {
            // SAFETY: destroyed only once; the driver waits for its runs.
            unsafe { (self.driver.destroy_executable)(graph) };
        }
    }
}
