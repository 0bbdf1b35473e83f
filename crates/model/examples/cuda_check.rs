//! Checks of CUDA: without arguments that NVRTC compiles all kernels for sm_80, sm_89, sm_90 and sm_120, as far as it knows
//! them (no GPU is needed), with `device` that there is a GPU. `benches/cuda-check.sh` runs it.
#![expect(clippy::print_stdout, reason = "a program that reports")]

use turnwise_model::cuda::{compile_check, describe};

/// Name, width of the residual stream and of a head.
const SHAPES: [(&str, usize, usize); 3] =
    [("Qwen2.5-0.5B", 896, 64), ("Qwen2.5-1.5B", 1536, 128), ("Qwen3-4B", 2560, 128)];
const ARCHITECTURES: [&str; 4] = ["sm_80", "sm_89", "sm_90", "sm_120"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
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
