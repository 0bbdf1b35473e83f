//! Learner and engine on an NVIDIA GPU, with bfloat16 matrix products, f32 accumulation and f32
//! master weights.
//!
//! NVRTC compiles the CUDA C++ in `kernels/` for the model's shape on first use; matrix products
//! use cuBLAS. Building does not need CUDA (`docs/adr/0014-cuda-by-hand.md`).

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
