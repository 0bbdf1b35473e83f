//! Learner and engine on an NVIDIA GPU: bfloat16 matrix products with f32 sums, f32 master weights.
//!
//! | file | subject |
//! |---|---|
//! | `angles.rs` | the rotary angles on the device |
//! | `backend.rs` | the passes of a lane and the steps of an engine |
//! | `compile.rs` | the kernels' source, and how NVRTC makes machine code of it |
//! | `decoder.rs` | the decoder over a packed micro-batch |
//! | `device.rs` | the device that all learners and engines of a process share, and matrix products on it |
//! | `driver.rs` | the interface of a device |
//! | `emulator.rs` | a device for the tests |
//! | `engine.rs` | decoding on a device |
//! | `error.rs` | errors on the device's side |
//! | `gpu.rs` | an NVIDIA GPU through its driver |
//! | `head.rs` | the head on the decoder's last layer |
//! | `kernels/` | the kernels with typed arguments |
//! | `learner.rs` | what a learner keeps on the device, and its passes |
//! | `library.rs` | the libraries of CUDA, loaded when first needed |
//! | `memory.rs` | buffers in the device's memory |
//! | `network.rs` | a decoder's weights on the device, and its linear layers |
//! | `tiles.rs` | tiles of attention over the rows of packed sequences, the longest work first |
//!
//! Kernels are CUDA C++ in `kernels/`, compiled by NVRTC for the model's shape on first use; matrix
//! products use cuBLAS. CUDA is loaded at run time, so building does not need it
//! (`docs/adr/0014-cuda-by-hand.md`). Tests run the kernels' source on the CPU.

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
