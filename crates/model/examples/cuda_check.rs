//! Checks CUDA. Without arguments, NVRTC compiles all kernels for those of sm_80, sm_89, sm_90 and
//! sm_120 that it supports, without a GPU; with `device`, there must be a GPU.
//! `benches/cuda-check.sh` runs it.
//!
//! Exits with 3 if a library or a device is missing, and with 1 if an existing one fails.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that reports")]

use std::process::ExitCode;

use turnwise_model::cuda::{CudaError, compile_check, describe};

/// Name, width of the residual stream and of a head.
const SHAPES: [(&str, usize, usize); 3] =
    [("Qwen2.5-0.5B", 896, 64), ("Qwen2.5-1.5B", 1536, 128), ("Qwen3-4B", 2560, 128)];
const ARCHITECTURES: [&str; 4] = ["sm_80", "sm_89", "sm_90", "sm_120"];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            let missing = matches!(error, CudaError::Library { .. } | CudaError::Device(_));
            ExitCode::from(if missing { 3 } else { 1 })
        }
    }
}

fn run() -> Result<(), CudaError> {
    if std::env::args().any(|argument| argument == "device") {
        println!("{}", describe()?);
        return Ok(());
    }
    for (name, hidden, head) in SHAPES {
        let sizes = compile_check(hidden, head, &ARCHITECTURES)?;
        for (architecture, bytes) in ARCHITECTURES.iter().zip(sizes) {
            match bytes {
                Some(bytes) => println!("{name}: {bytes} bytes of machine code for {architecture}"),
                None => println!("{name}: {architecture} is skipped, this NVRTC does not know it"),
            }
        }
    }
    Ok(())
}
