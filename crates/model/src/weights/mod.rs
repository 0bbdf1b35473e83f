//! A decoder's weights: layout, adapters and random initialization.

mod adapted;
mod init;
pub(crate) mod lora;
mod parameters;
mod vision;

pub use adapted::Weights;
pub(crate) use parameters::tower_weights;
pub use parameters::{LayerLayout, ParameterLayout, Parameters, TensorInfo, TensorList};
pub(crate) use vision::{BlockLayout, NormLayout, VisionLayout};
