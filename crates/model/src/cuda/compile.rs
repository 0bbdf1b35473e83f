//! Compiles the kernels with NVRTC.
#![expect(unsafe_code, reason = "the compiler is a C library")]

use std::ffi::{CStr, CString, c_int};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::CudaError;
use super::driver::Shape;
use super::library::{CompilerLibrary, Handle, INVALID_OPTION, compiler};

const FILES: [&str; 7] = [
    include_str!("kernels/common.cuh"),
    include_str!("kernels/norm.cu"),
    include_str!("kernels/elementwise.cu"),
    include_str!("kernels/qkv.cu"),
    include_str!("kernels/attention.cu"),
    include_str!("kernels/decode.cu"),
    include_str!("kernels/head.cu"),
];

pub(crate) fn source(shape: Shape) -> String {
    let Shape { hidden, head } = shape;
    format!("#define HIDDEN {hidden}\n#define HEAD {head}\n{}", FILES.concat())
}

#[cfg(test)]
pub(crate) fn kernels() -> Vec<&'static str> {
    let heads = FILES.iter().flat_map(|file| file.split("extern \"C\" __global__ void").skip(1));
    heads
        .filter_map(|rest| {
            let rest = rest.trim_start();
            let rest = match rest.strip_prefix("__launch_bounds__(") {
                Some(rest) => {
                    let mut depth = 1;
                    let end = rest.find(|c| {
                        depth += i32::from(c == '(') - i32::from(c == ')');
                        depth == 0
                    })?;
                    rest[end + 1..].trim_start()
                }
                None => rest,
            };
            Some(&rest[..rest.find('(')?])
        })
        .collect()
}

/// Returns the kernels' machine code for an architecture such as `sm_90`. Compiles the kernels
/// unless the code is in the cache folder `turnwise/cuda`. Concurrent writes to the cache are safe.
pub(super) fn binary(shape: Shape, architecture: &str) -> Result<Vec<u8>, CudaError> {
    let source = source(shape);
    let library = compiler()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both out-pointers are valid.
    unsafe { (library.version)(&raw mut major, &raw mut minor) };
    let key = crc32c::crc32c(source.as_bytes());
    let cached = cache_folder().map(|folder| {
        let Shape { hidden, head } = shape;
        folder
            .join(format!("{key:08x}-{}-{hidden}-{head}-{architecture}-{major}.{minor}.cubin", source.len()))
    });
    if let Some(binary) = cached.as_deref().and_then(read_cached) {
        return Ok(binary);
    }
    let binary = compile(library, &source, architecture)?;
    if let Some(path) = cached {
        let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let _ = folder.and_then(|()| turnwise_files::write_shared(&path, |file| file.write_all(&binary)));
    }
    Ok(binary)
}

fn read_cached(path: &Path) -> Option<Vec<u8>> {
    std::fs::read(path).ok().filter(|binary| binary.starts_with(b"\x7fELF"))
}

fn cache_folder() -> Option<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let root = std::env::var_os("XDG_CACHE_HOME")
        .filter(|folder| !folder.is_empty())
        .map(PathBuf::from)
        .or_else(home)?;
    Some(root.join("turnwise").join("cuda"))
}

pub(super) fn compile(
    library: &CompilerLibrary,
    source: &str,
    architecture: &str,
) -> Result<Vec<u8>, CudaError> {
    let failed = |call: &'static str, reason: String| CudaError::Call { call, reason };
    let source = CString::new(source).map_err(|error| failed("nvrtcCreateProgram", error.to_string()))?;
    let options = [format!("--gpu-architecture={architecture}"), "--std=c++17".into()];
    let options: Vec<CString> = options.into_iter().filter_map(|option| CString::new(option).ok()).collect();
    let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
    // SAFETY: the library returns a static string for every code.
    let status =
        |code| unsafe { CStr::from_ptr((library.error_string)(code)) }.to_string_lossy().into_owned();
    let check = |call: &'static str, code: c_int| {
        if code == 0 { Ok(()) } else { Err(failed(call, status(code))) }
    };
    let mut program: Handle = 0;
    // SAFETY: the strings are NUL-terminated and outlive the program; no headers are passed.
    let code = unsafe {
        let name = c"turnwise.cu".as_ptr();
        (library.create)(&raw mut program, source.as_ptr(), name, 0, std::ptr::null(), std::ptr::null())
    };
    check("nvrtcCreateProgram", code)?;
    // SAFETY: the program is alive and `options` has the given length.
    let compiled = unsafe { (library.compile)(program, options.len() as c_int, options.as_ptr()) };
    let result = if compiled == 0 {
        read_binary(library, program, &check)
    } else {
        Err(refused(architecture, compiled, status(compiled), read_log(library, program).trim()))
    };
    // SAFETY: created above and not used again.
    unsafe { (library.destroy)(&raw mut program) };
    result
}

fn refused(architecture: &str, code: c_int, mut status: String, log: &str) -> CudaError {
    if code == INVALID_OPTION || log.is_empty() {
        status += "; NVRTC may be older than the device";
    }
    let log = if log.is_empty() { "there is no log" } else { log };
    CudaError::Compile { architecture: architecture.into(), status, log: log.into() }
}

fn read_binary(
    library: &CompilerLibrary,
    program: Handle,
    check: &impl Fn(&'static str, c_int) -> Result<(), CudaError>,
) -> Result<Vec<u8>, CudaError> {
    let mut size = 0;
    // SAFETY: the program was compiled.
    check("nvrtcGetCUBINSize", unsafe { (library.binary_size)(program, &raw mut size) })?;
    let mut binary = vec![0u8; size];
    // SAFETY: `binary` has `size` bytes.
    check("nvrtcGetCUBIN", unsafe { (library.binary)(program, binary.as_mut_ptr()) })?;
    Ok(binary)
}

fn read_log(library: &CompilerLibrary, program: Handle) -> String {
    let mut size = 0;
    // SAFETY: the program is alive.
    unsafe { (library.log_size)(program, &raw mut size) };
    let mut log = vec![0u8; size];
    // SAFETY: the log buffer has `size` bytes.
    unsafe { (library.log)(program, log.as_mut_ptr().cast()) };
    String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned()
}

fn known(library: &CompilerLibrary) -> Result<Vec<c_int>, CudaError> {
    let check = |call, code| match code {
        0 => Ok(()),
        code => Err(CudaError::Call { call, reason: format!("status {code}") }),
    };
    let mut count = 0;
    // SAFETY: the out-pointer is valid.
    check("nvrtcGetNumSupportedArchs", unsafe { (library.architecture_count)(&raw mut count) })?;
    let mut known = vec![0; count as usize];
    // SAFETY: `known` has room for all of them.
    check("nvrtcGetSupportedArchs", unsafe { (library.architectures)(known.as_mut_ptr()) })?;
    Ok(known)
}

/// Compiles all kernels for the given architectures, without a device.
///
/// Returns the size in bytes of the machine code for each architecture, or `None` if this NVRTC
/// does not support it.
///
/// # Errors
/// Fails if NVRTC cannot be loaded, a call fails, or the kernels do not compile; the error contains
/// the compiler's log.
pub fn compile_check(
    hidden: usize,
    head: usize,
    architectures: &[&str],
) -> Result<Vec<Option<usize>>, CudaError> {
    let library = compiler()?;
    let (source, known) = (source(Shape { hidden, head }), known(library)?);
    let is_known = |name: &str| known.iter().any(|number| format!("sm_{number}") == name);
    architectures
        .iter()
        .map(|&name| is_known(name).then(|| Ok(compile(library, &source, name)?.len())).transpose())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_is_found_by_name() {
        let names = kernels();
        assert_eq!(names.len(), FILES.concat().matches("extern \"C\" __global__").count());
        assert!(
            names.iter().all(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_')),
            "{names:?}"
        );
        assert!(["rms_norm", "attention_backward_keys", "choose"].iter().all(|name| names.contains(name)));
    }

    #[test]
    fn a_cached_file_is_taken_only_if_it_is_machine_code() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.cubin");
        assert_eq!(read_cached(&path), None);
        for (bytes, taken) in [(&b""[..], false), (b"no code", false), (b"\x7fELF and code", true)] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(read_cached(&path).is_some(), taken);
        }
    }

    #[test]
    fn a_refusal_without_a_log_has_its_status() {
        let text = |code, log| refused("sm_120", code, format!("status {code}"), log).to_string();
        let older = "sm_120 (status 7; NVRTC may be older than the device): there is no log";
        assert!(text(7, "").ends_with(older), "{}", text(7, ""));
        assert!(text(INVALID_OPTION, "no such arch").contains("older than"), "{}", text(5, "no such arch"));
        let wrong = text(6, "line 3: no");
        assert!(wrong.ends_with("sm_120 (status 6): line 3: no"), "{wrong}");
    }

    #[test]
    fn the_kernels_compile_and_a_wrong_one_is_refused_with_the_log() {
        let library = match compiler() {
            Ok(library) => library,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let sizes = compile_check(64, 16, &["sm_80", "sm_1"]).unwrap();
        assert!(sizes[0] > Some(10_000) && sizes[1].is_none(), "{sizes:?}");
        let wrong =
            source(Shape { hidden: 64, head: 16 }).replace("sqrtf(block_sum(sum)", "sqrtf(block_sum(mus)");
        match compile(library, &wrong, "sm_80") {
            Err(CudaError::Compile { log, .. }) => assert!(log.contains("mus"), "{log}"),
            other => panic!("{other:?}"),
        }
        match compile(library, &source(Shape { hidden: 64, head: 16 }), "sm_1") {
            Err(CudaError::Compile { status, .. }) => assert!(status.contains("older than"), "{status}"),
            other => panic!("{other:?}"),
        }
    }
}
