//! Traits that `cpu/` and `cuda/` implement: training passes and decoding steps.

mod decoding;
mod network;
mod passes;

pub(crate) use decoding::{Choice, Decoding, Row};
pub(crate) use network::Network;
pub(crate) use passes::{Divergence, Passes, Second};
