//! The weights of a decoder: their layout, adapters and random initialization.
//!
//! | file | subject |
//! |---|---|
//! | `adapted.rs` | weights with an adapter |
//! | `init.rs` | random weights |
//! | `lora/` | low-rank adapters |
//! | `parameters.rs` | the layout of all weights in one flat buffer |
//! | `vision.rs` | the vision tower's tensors |

mod adapted;
mod init;
pub(crate) mod lora;
mod parameters;
mod vision;

pub use adapted::Weights;
pub(crate) use parameters::tower_weights;
pub use parameters::{LayerLayout, ParameterLayout, Parameters, TensorInfo, TensorList};
pub(crate) use vision::{BlockLayout, NormLayout, VisionLayout};
