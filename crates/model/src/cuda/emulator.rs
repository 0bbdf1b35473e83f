//! A device for tests: the kernel source, prefixed by `emulator/host.h`, compiled with a C++
//! compiler and run on the CPU. Arithmetic, indices and barriers match a GPU; timing does not.
#![expect(unsafe_code, reason = "it calls what a C++ compiler made, and its addresses are the host's")]

use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{ThreadId, current};

use libloading::Library;

use super::CudaError;
use super::compile::{kernels, source};
use super::driver::{Address, Argument, Driver, Launch, Matrix, Product, Shape};

const GUARD: usize = 64;
const GUARD_BYTE: u8 = 0xa5;

type LaunchFunction =
    unsafe extern "C" fn(*const c_char, *const u32, *const u32, usize, *mut *mut c_void) -> c_int;

/// Flags that preserve the order of floating-point sums.
const FLAGS: [&str; 7] =
    ["-O2", "-std=c++17", "-shared", "-fPIC", "-U_FORTIFY_SOURCE", "-ffp-contract=off", "-w"];

pub(crate) struct Emulator {
    compiler: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    modules: Vec<(Shape, &'static Library, LaunchFunction)>,
    allocations: HashMap<Address, usize>,
    /// Recorded operations of each thread; parallel tests share the device.
    recording: HashMap<ThreadId, Vec<Noted>>,
    recordings: Vec<Vec<Noted>>,
    downloaded: HashMap<ThreadId, usize>,
}

#[derive(Clone)]
enum Noted {
    Launch(usize, &'static str, [u32; 3], [u32; 3], u32, Vec<Argument>),
    Multiply(Product),
    Copy(Address, Address, usize),
    Clear(Address, usize),
}

static OPENED: OnceLock<Option<Arc<Emulator>>> = OnceLock::new();

pub(crate) fn emulator() -> Option<Arc<dyn Driver>> {
    let opened = OPENED.get_or_init(|| {
        let output = Command::new("g++").arg("--version").output().ok()?;
        let compiler = String::from_utf8_lossy(&output.stdout).into_owned();
        let device = Arc::new(Emulator { compiler, state: Mutex::default() });
        (output.status.success() && cfg!(target_arch = "x86_64")).then_some(device)
    });
    if opened.is_none() {
        eprintln!("skipped: the kernels are run on the CPU only where g++ is, on x86-64");
    }
    opened.clone().map(|device| device as Arc<dyn Driver>)
}

pub(crate) fn downloaded() -> usize {
    let device = OPENED.get().and_then(Option::as_ref);
    device.map_or(0, |device| device.state().downloaded.get(&current().id()).copied().unwrap_or(0))
}

fn build(shape: Shape, compiler: &str) -> PathBuf {
    let mut text = format!("{}\n{}", include_str!("emulator/host.h"), source(shape));
    text.push_str(
        "extern \"C\" int turnwise_launch(const char* name, const unsigned* grid, const unsigned* block, \
         size_t shared, void** arguments) {\n",
    );
    for kernel in kernels() {
        text.push_str(&format!(
            "if (!strcmp(name, \"{kernel}\")) {{ host::run([](void** a) {{ host::call({kernel}, a); }}, grid, block, \
             shared, arguments); return 0; }}\n"
        ));
    }
    text.push_str("return 1;\n}\n");
    let how = format!("{FLAGS:?} {compiler}");
    let sum = crc32c::crc32c_append(crc32c::crc32c(text.as_bytes()), how.as_bytes());
    let key = format!("{sum:08x}-{}", text.len());
    // In the target folder, because a shared folder may belong to another user.
    let folder = std::env::current_exe().unwrap().with_file_name("turnwise-cuda-host");
    std::fs::create_dir_all(&folder).unwrap();
    let library = folder.join(format!("{key}.so"));
    if !library.is_file() {
        let aside = folder.join(format!("{key}-{}", std::process::id()));
        let (code, made) = (aside.with_extension("cpp"), aside.with_extension("so"));
        std::fs::write(&code, text).unwrap();
        let output = Command::new("g++").args(FLAGS).arg("-o").arg(&made).arg(&code).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::rename(&made, &library).unwrap();
        let _ = std::fs::remove_file(&code);
    }
    library
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes + GUARD, 256).unwrap()
}

fn widen(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Returns an entry of a matrix or of its transpose.
///
/// # Safety
/// The matrix must be in live memory.
unsafe fn entry(matrix: Matrix, row: usize, column: usize) -> f32 {
    let (row, column) = if matrix.transposed { (column, row) } else { (row, column) };
    let address = (matrix.at as *const u16).wrapping_add(row * matrix.stride + column);
    // SAFETY: see the caller's contract.
    widen(unsafe { address.read() })
}

impl State {
    fn run(&mut self, noted: &Noted) {
        match noted {
            Noted::Launch(module, kernel, grid, block, shared, arguments) => {
                let launch = self.modules[*module].2;
                let name = CString::new(*kernel).unwrap();
                let mut words: Vec<u64> = arguments.iter().map(|argument| argument.word()).collect();
                let mut pointers: Vec<*mut c_void> =
                    words.iter_mut().map(|word| std::ptr::from_mut(word).cast()).collect();
                // SAFETY: compiled from the kernels, and run under this state's lock.
                let found = unsafe {
                    launch(
                        name.as_ptr(),
                        grid.as_ptr(),
                        block.as_ptr(),
                        *shared as usize,
                        pointers.as_mut_ptr(),
                    )
                };
                assert_eq!(found, 0, "no kernel {kernel}");
                self.check_guards(kernel);
            }
            Noted::Multiply(product) => {
                let Product { a, b, c, m, n, k, alpha, beta } = *product;
                // Both operands as rows, so that the inner loop runs along memory. SAFETY: all
                // three are in live memory; guards check the result's.
                unsafe {
                    let rows: Vec<f32> = (0..m * k).map(|at| entry(a, at / k, at % k)).collect();
                    let columns: Vec<f32> = (0..n * k).map(|at| entry(b, at % k, at / k)).collect();
                    for (row, x) in rows.chunks_exact(k).enumerate() {
                        for (column, w) in columns.chunks_exact(k).enumerate() {
                            let sum: f32 = x.iter().zip(w).map(|(x, w)| x * w).sum();
                            let offset = row * c.stride + column;
                            if c.wide {
                                let to = (c.at as *mut f32).wrapping_add(offset);
                                let before = if beta == 0.0 { 0.0 } else { beta * to.read() };
                                to.write(alpha * sum + before);
                            } else {
                                let to = (c.at as *mut u16).wrapping_add(offset);
                                let before = if beta == 0.0 { 0.0 } else { beta * widen(to.read()) };
                                to.write(super::memory::Bf16::from_f32(alpha * sum + before).to_bits());
                            }
                        }
                    }
                }
                self.check_guards("a product");
            }
            Noted::Copy(from, to, bytes) => {
                // SAFETY: both ranges lie in buffers.
                unsafe { std::ptr::copy(*from as *const u8, *to as *mut u8, *bytes) };
                self.check_guards("a copy");
            }
            Noted::Clear(at, bytes) => {
                // SAFETY: the range lies in a buffer.
                unsafe { std::ptr::write_bytes(*at as *mut u8, 0, *bytes) };
                self.check_guards("a clear");
            }
        }
    }

    fn check_guards(&self, what: &str) {
        for (&at, &bytes) in &self.allocations {
            for offset in 0..GUARD {
                // SAFETY: the guard belongs to the allocation.
                let byte = unsafe { ((at as usize + bytes + offset) as *const u8).read() };
                assert_eq!(byte, GUARD_BYTE, "{what} wrote past a buffer of {bytes} bytes");
            }
        }
    }
}

impl State {
    fn records(&self) -> bool {
        self.recording.contains_key(&current().id())
    }
}

impl Emulator {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, noted: Noted) {
        let mut state = self.state();
        match state.recording.get_mut(&current().id()) {
            Some(recording) => recording.push(noted),
            None => state.run(&noted),
        }
    }
}

impl Driver for Emulator {
    fn name(&self) -> &'static str {
        "the CPU, emulating"
    }

    fn multiprocessors(&self) -> usize {
        2
    }

    fn memory(&self) -> Result<[usize; 2], CudaError> {
        Ok([1 << 32, 1 << 32])
    }

    fn allocate(&self, bytes: usize) -> Result<Address, CudaError> {
        let mut state = self.state();
        assert!(!state.records(), "memory may not be taken while recording");
        // SAFETY: the size is not zero. Memory is filled with NaN in every format.
        let at = unsafe {
            let at = alloc(layout(bytes));
            at.write_bytes(0xff, bytes);
            at.add(bytes).write_bytes(GUARD_BYTE, GUARD);
            at as Address
        };
        state.allocations.insert(at, bytes);
        Ok(at)
    }

    fn free(&self, at: Address) {
        let mut state = self.state();
        let bytes = state.allocations.remove(&at).unwrap();
        // SAFETY: from `allocate`, and removed from the table.
        unsafe { dealloc(at as *mut u8, layout(bytes)) };
    }

    fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), CudaError> {
        let state = self.state();
        assert!(!state.records(), "uploads may not be recorded: the host's memory may be gone");
        // SAFETY: the range lies in a buffer.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len()) };
        state.check_guards("an upload");
        Ok(())
    }

    fn download(&self, from: Address, bytes: &mut [u8]) -> Result<(), CudaError> {
        let mut state = self.state();
        assert!(!state.records(), "nothing can be waited for while recording");
        *state.downloaded.entry(current().id()).or_default() += bytes.len();
        drop(state);
        // SAFETY: the range lies in a buffer.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<(), CudaError> {
        self.note(Noted::Copy(from, to, bytes));
        Ok(())
    }

    fn clear(&self, at: Address, bytes: usize) -> Result<(), CudaError> {
        self.note(Noted::Clear(at, bytes));
        Ok(())
    }

    fn module(&self, shape: Shape) -> Result<usize, CudaError> {
        let mut state = self.state();
        if let Some(found) = state.modules.iter().position(|module| module.0 == shape) {
            return Ok(found);
        }
        // SAFETY: compiled from the kernels and `host.h`; never unloaded.
        let (library, launch) = unsafe {
            let library: &'static Library =
                Box::leak(Box::new(Library::new(build(shape, &self.compiler)).unwrap()));
            (library, *library.get::<LaunchFunction>(b"turnwise_launch\0").unwrap())
        };
        state.modules.push((shape, library, launch));
        Ok(state.modules.len() - 1)
    }

    fn launch(&self, launch: &Launch<'_>) -> Result<(), CudaError> {
        let Launch { module, kernel, grid, block, shared, arguments } = *launch;
        self.note(Noted::Launch(module, kernel, grid, block, shared, arguments.to_vec()));
        Ok(())
    }

    fn multiply(&self, product: &Product) -> Result<(), CudaError> {
        self.note(Noted::Multiply(*product));
        Ok(())
    }

    fn record(&self) -> Result<(), CudaError> {
        self.state().recording.insert(current().id(), Vec::new());
        Ok(())
    }

    fn finish_recording(&self) -> Result<usize, CudaError> {
        let mut state = self.state();
        let recording = state.recording.remove(&current().id()).unwrap();
        state.recordings.push(recording);
        Ok(state.recordings.len() - 1)
    }

    fn replay(&self, recording: usize) -> Result<(), CudaError> {
        let mut state = self.state();
        for noted in state.recordings[recording].clone() {
            state.run(&noted);
        }
        Ok(())
    }

    fn forget(&self, recording: usize) {
        self.state().recordings[recording].clear();
    }
}
