//! Learner and engine on an NVIDIA GPU: bfloat16 matrix products with f32 sums, f32 master weights.
//!
//! | file | subject |
//! |---|---|
//! | `angles.rs` | rotary angles |
//! | `compile.rs` | source of the kernels, and its compilation with NVRTC |
//! | `decoder.rs` | forward and backward pass of the decoder |
//! | `device.rs` | the shared device of a process, and matrix products |
//! | `driver.rs` | interface of a device |
//! | `emulator.rs` | a device for tests, on the CPU |
//! | `engine.rs` | decoding |
//! | `error.rs` | errors |
//! | `gpu.rs` | interface implemented by an NVIDIA GPU |
//! | `head.rs` | heads on the decoder's last layer |
//! | `kernels/` | typed launches of the kernels |
//! | `learner.rs` | a learner's data on the device, and its passes |
//! | `library.rs` | CUDA libraries, loaded on first use |
//! | `memory.rs` | buffers in device memory |
//! | `network.rs` | a decoder's weights and linear layers |
//! | `tiles.rs` | attention tiles over packed sequences |
//!
//! Kernels are CUDA C++ in `kernels/`, compiled by NVRTC for the model's shape on first use; matrix
//! products use cuBLAS. CUDA is loaded at run time, so building does not need it
//! (`docs/adr/0014-cuda-by-hand.md`). Tests run the kernels' source on the CPU.

mod angles;
mod compile;
mod decoder;
mod device;
mod driver;
#[cfg(test)]
mod emulator;
mod engine;
mod error;
mod gpu;
#[cfg(test)]
mod gpu_tests;
mod head;
#[cfg(test)]
mod kernel_tests;
mod kernels;
mod learner;
mod library;
mod memory;
mod network;
#[cfg(test)]
mod tests;
mod tiles;

pub use compile::compile_check;
pub use device::describe;
pub(crate) use device::total_memory;
pub(crate) use engine::{Engine, PROMPT_ROWS};
pub use error::CudaError;
pub(crate) use learner::{Bound, CudaPasses, TakenGradient, Trained};
pub use network::DeviceWeights;
