//! Learner and engine on an NVIDIA GPU, with bfloat16 matrix products, f32 accumulation and f32
//! master weights.
//!
//! | file | subject |
//! |---|---|
//! | `angles.rs` | rotary angles on the device |
//! | `backend.rs` | training passes of a lane and decoding steps of an engine |
//! | `compile.rs` | kernel source, compiled with NVRTC |
//! | `decoder.rs` | the decoder's passes over a packed micro-batch |
//! | `device.rs` | the device shared by all learners and engines of a process, with its matrix products |
//! | `driver.rs` | device interface |
//! | `emulator.rs` | a device for tests |
//! | `engine.rs` | decoding on a device |
//! | `error.rs` | errors from the CUDA backend |
//! | `gpu.rs` | an NVIDIA GPU through the driver API |
//! | `head.rs` | the heads on the decoder's last layer |
//! | `kernels/` | typed wrappers that launch the kernels |
//! | `learner.rs` | a learner's data on the device, and its passes |
//! | `library.rs` | CUDA libraries, loaded on first use |
//! | `memory.rs` | buffers in device memory |
//! | `network.rs` | a decoder's weights on the device, and its linear layers |
//! | `tiles.rs` | attention tiles over packed sequences, longest first |
//!
//! Kernels are CUDA C++ in `kernels/` and are compiled by NVRTC for the model's shape on first use.
//! Matrix products use cuBLAS. CUDA is loaded at run time, so building does not need it
//! (`docs/adr/0014-cuda-by-hand.md`). Tests run the kernel source on the CPU.

mod angles;
mod backend;
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

pub(crate) use backend::DeviceDecoding;
pub use compile::compile_check;
pub use device::describe;
pub(crate) use device::total_memory;
pub(crate) use engine::Engine;
pub use error::CudaError;
pub(crate) use learner::{Bound, CudaPasses, TakenGradient, Trained};
pub use network::DeviceWeights;
