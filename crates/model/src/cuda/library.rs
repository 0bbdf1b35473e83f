//! CUDA libraries, loaded on first use, so building does not need them.
//!
//! Signatures and constants fit CUDA 12 and 13. Opaque pointers are `usize`.
#![expect(unsafe_code, reason = "functions of C libraries are looked up by name")]

use std::error::Error as _;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::Library;

use super::CudaError;

pub(super) type Handle = usize;

pub(super) const BF16: c_int = 14;
pub(super) const F32: c_int = 0;
pub(super) const COMPUTE_F32: c_int = 68;
/// Makes cuBLAS add partial sums of split products in f32, never in bfloat16:
/// `CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION`.
pub(super) const F32_REDUCTION: c_int = 16;
pub(super) const DEFAULT_ALGORITHM: c_int = -1;
pub(super) const MULTIPROCESSORS: c_int = 16;
pub(super) const CAPABILITY_MAJOR: c_int = 75;
pub(super) const CAPABILITY_MINOR: c_int = 76;
pub(super) const DYNAMIC_SHARED: c_int = 8;
/// Disables synchronization with the legacy stream.
pub(super) const NON_BLOCKING: c_uint = 1;
/// Calls from other threads do not affect the capture.
pub(super) const CAPTURE_THREAD_LOCAL: c_uint = 1;
pub(super) const OUT_OF_MEMORY: c_int = 2;
pub(super) const INVALID_OPTION: c_int = 5;
/// Major CUDA versions that these signatures fit, newest first.
const MAJORS: [c_int; 2] = [13, 12];

fn said(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

macro_rules! library {
    ($(#[$doc:meta])* $name:ident { $($field:ident = $symbol:literal($($argument:ty),*) -> $result:ty;)* }) => {
        $(#[$doc])*
        pub(super) struct $name {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl $name {
            /// Looks up every function in the library.
            ///
            /// # Safety
            /// `library` must be the library that these signatures belong to, and must never be
            /// unloaded.
            unsafe fn read(library: &Library) -> Result<Self, String> {
                Ok(Self {
                    $(
                        // SAFETY: see the caller's contract.
                        $field: unsafe { library.get(concat!($symbol, "\0").as_bytes()) }
                            .map(|symbol| *symbol)
                            .map_err(|error| said(&error))?,
                    )*
                })
            }
        }
    };
}

library! {
    DriverLibrary {
        init = "cuInit"(c_uint) -> c_int;
        version = "cuDriverGetVersion"(*mut c_int) -> c_int;
        error_string = "cuGetErrorString"(c_int, *mut *const c_char) -> c_int;
        device_count = "cuDeviceGetCount"(*mut c_int) -> c_int;
        device = "cuDeviceGet"(*mut c_int, c_int) -> c_int;
        device_name = "cuDeviceGetName"(*mut c_char, c_int, c_int) -> c_int;
        device_attribute = "cuDeviceGetAttribute"(*mut c_int, c_int, c_int) -> c_int;
        retain = "cuDevicePrimaryCtxRetain"(*mut Handle, c_int) -> c_int;
        set_current = "cuCtxSetCurrent"(Handle) -> c_int;
        memory_info = "cuMemGetInfo_v2"(*mut usize, *mut usize) -> c_int;
        allocate = "cuMemAlloc_v2"(*mut u64, usize) -> c_int;
        free = "cuMemFree_v2"(u64) -> c_int;
        upload = "cuMemcpyHtoDAsync_v2"(u64, *const c_void, usize, Handle) -> c_int;
        download = "cuMemcpyDtoHAsync_v2"(*mut c_void, u64, usize, Handle) -> c_int;
        copy = "cuMemcpyDtoDAsync_v2"(u64, u64, usize, Handle) -> c_int;
        clear = "cuMemsetD8Async"(u64, u8, usize, Handle) -> c_int;
        stream = "cuStreamCreate"(*mut Handle, c_uint) -> c_int;
        wait = "cuStreamSynchronize"(Handle) -> c_int;
        load = "cuModuleLoadData"(*mut Handle, *const c_void) -> c_int;
        function = "cuModuleGetFunction"(*mut Handle, Handle, *const c_char) -> c_int;
        set_attribute = "cuFuncSetAttribute"(Handle, c_int, c_int) -> c_int;
        launch = "cuLaunchKernel"(
            Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
        ) -> c_int;
        begin_capture = "cuStreamBeginCapture_v2"(Handle, c_uint) -> c_int;
        end_capture = "cuStreamEndCapture"(Handle, *mut Handle) -> c_int;
        instantiate = "cuGraphInstantiateWithFlags"(*mut Handle, Handle, u64) -> c_int;
        launch_graph = "cuGraphLaunch"(Handle, Handle) -> c_int;
        destroy_graph = "cuGraphDestroy"(Handle) -> c_int;
        destroy_executable = "cuGraphExecDestroy"(Handle) -> c_int;
    }
}

library! {
    BlasLibrary {
        create = "cublasCreate_v2"(*mut Handle) -> c_int;
        set_stream = "cublasSetStream_v2"(Handle, Handle) -> c_int;
        set_workspace = "cublasSetWorkspace_v2"(Handle, u64, usize) -> c_int;
        set_math_mode = "cublasSetMathMode"(Handle, c_int) -> c_int;
        multiply = "cublasGemmEx"(
            Handle, c_int, c_int, c_int, c_int, c_int, *const f32, u64, c_int, c_int, u64, c_int, c_int, *const f32,
            u64, c_int, c_int, c_int, c_int
        ) -> c_int;
    }
}

library! {
    CompilerLibrary {
        error_string = "nvrtcGetErrorString"(c_int) -> *const c_char;
        version = "nvrtcVersion"(*mut c_int, *mut c_int) -> c_int;
        architecture_count = "nvrtcGetNumSupportedArchs"(*mut c_int) -> c_int;
        architectures = "nvrtcGetSupportedArchs"(*mut c_int) -> c_int;
        create = "nvrtcCreateProgram"(
            *mut Handle, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char
        ) -> c_int;
        compile = "nvrtcCompileProgram"(Handle, c_int, *const *const c_char) -> c_int;
        log_size = "nvrtcGetProgramLogSize"(Handle, *mut usize) -> c_int;
        log = "nvrtcGetProgramLog"(Handle, *mut c_char) -> c_int;
        binary_size = "nvrtcGetCUBINSize"(Handle, *mut usize) -> c_int;
        binary = "nvrtcGetCUBIN"(Handle, *mut u8) -> c_int;
        destroy = "nvrtcDestroyProgram"(*mut Handle) -> c_int;
    }
}

fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    if let Some(paths) = std::env::var_os("TURNWISE_CUDA_PATH") {
        folders.extend(std::env::split_paths(&paths));
    }
    for root in ["CUDA_PATH", "CUDA_HOME"].into_iter().filter_map(std::env::var_os) {
        folders.push(PathBuf::from(root).join("lib64"));
    }
    folders.push("/usr/local/cuda/lib64".into());
    folders
}

/// Returns the newest major CUDA version that the driver supports, or `None` without a driver.
fn newest_major() -> Option<c_int> {
    let mut version = 0;
    // SAFETY: the out-pointer is valid; this call needs no initialization.
    let code = unsafe { (driver().ok()?.version)(&raw mut version) };
    (code == 0 && version > 0).then_some(version / 1000)
}

/// Returns file names to try: versions that the driver supports, newest first, then no version. A
/// library newer than the driver can be loaded but fails on the first call.
fn versions(file: &str, newest: Option<c_int>) -> Vec<String> {
    let majors = MAJORS.iter().filter(|&&major| newest.is_none_or(|newest| major <= newest));
    majors.map(|major| format!("{file}.{major}")).chain([file.to_owned()]).collect()
}

/// Returns true if the library's file itself is missing, rather than one of its dependencies.
fn is_absence(candidate: &Path, reason: &str) -> bool {
    let reason = reason.strip_prefix(&*candidate.to_string_lossy());
    reason.is_some_and(|rest| rest.starts_with(": cannot open shared object file: No such file"))
}

/// Opens the first file that loads. If none loads, returns the error of the first existing file.
fn open(
    library: &'static str,
    names: &[String],
    folders: &[PathBuf],
    hint: &'static str,
) -> Result<Library, CudaError> {
    let mut absence: Option<String> = None;
    let mut more: Option<String> = None;
    for name in names {
        let candidates = std::iter::once(PathBuf::from(name)).chain(folders.iter().map(|f| f.join(name)));
        for candidate in candidates {
            // SAFETY: loading an NVIDIA library only initializes it.
            let error = match unsafe { Library::new(&candidate) } {
                Ok(library) => return Ok(library),
                Err(error) => said(&error),
            };
            if is_absence(&candidate, &error) {
                absence.get_or_insert(error);
            } else {
                more.get_or_insert_with(|| format!("{} does not load: {error}", candidate.display()));
            }
        }
    }
    Err(CudaError::Library { library, reason: more.or(absence).unwrap_or_default(), hint })
}

macro_rules! loaded {
    ($(#[$doc:meta])* $function:ident -> $kind:ident, $library:literal, $names:expr, $hint:literal) => {
        $(#[$doc])*
        pub(super) fn $function() -> Result<&'static $kind, CudaError> {
            static LOADED: OnceLock<Result<$kind, CudaError>> = OnceLock::new();
            let loaded = LOADED.get_or_init(|| {
                // Never unloaded, because its functions stay in use.
                let library = std::mem::ManuallyDrop::new(open($library, &$names, &folders(), $hint)?);
                // SAFETY: the name identifies the library, so the signatures fit.
                unsafe { $kind::read(&library) }
                    .map_err(|reason| CudaError::Library { library: $library, reason, hint: $hint })
            });
            loaded.as_ref().map_err(CudaError::clone)
        }
    };
}

loaded!(
    driver -> DriverLibrary,
    "the NVIDIA driver, libcuda.so.1,",
    ["libcuda.so.1".to_owned(), "libcuda.so".to_owned()],
    "install the driver of this machine's NVIDIA GPU, or set policy.device = \"cpu\""
);
loaded!(
    blas -> BlasLibrary,
    "cuBLAS, libcublas.so,",
    versions("libcublas.so", newest_major()),
    "install it (for example `pip install nvidia-cublas`, or nvidia-cublas-cu12 for a driver older than 580) and name \
     its folder in TURNWISE_CUDA_PATH"
);
loaded!(
    compiler -> CompilerLibrary,
    "the run-time compiler NVRTC, libnvrtc.so,",
    versions("libnvrtc.so", newest_major()),
    "install it (for example `pip install nvidia-cuda-nvrtc`, or nvidia-cuda-nvrtc-cu12 for a driver older than 580) \
     and name its folder in TURNWISE_CUDA_PATH"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_library_is_offered_that_the_driver_cannot_run() {
        let names = |newest| versions("libcublas.so", newest).join(" ");
        assert_eq!(names(Some(12)), "libcublas.so.12 libcublas.so");
        for newest in [Some(13), Some(14), None] {
            assert_eq!(names(newest), "libcublas.so.13 libcublas.so.12 libcublas.so");
        }
        assert_eq!(names(Some(11)), "libcublas.so");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_reason_is_of_a_library_that_is_there_and_does_not_load() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["libturnwise-none.so.13", "libturnwise-none.so.12"].map(str::to_owned);
        let reason = || match open("none", &names, &[folder.path().into()], "") {
            Err(CudaError::Library { reason, .. }) => reason,
            other => panic!("{other:?}"),
        };
        assert!(reason().starts_with("libturnwise-none.so.13: cannot open"), "{}", reason());
        std::fs::write(folder.path().join(&names[1]), "no library at all").unwrap();
        let text = reason();
        assert!(text.contains("libturnwise-none.so.12 does not load"), "{text}");
        assert!(!text.contains("No such file"), "{text}");
        let missing = "libcublasLt.so.13: cannot open shared object file: No such file or directory";
        assert!(!is_absence(Path::new("libcublas.so.13"), missing));
        assert!(is_absence(Path::new("libcublasLt.so.13"), missing));
    }
}
