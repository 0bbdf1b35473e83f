//! Backend traits: training passes and decoding steps.
//!
//! | file | subject |
//! |---|---|
//! | `decoding.rs` | decoding steps on a key-value cache |
//! | `network.rs` | the weights used in one pass |
//! | `passes.rs` | forward and backward passes over micro-batches |
//!
//! `cpu/` and `cuda/` implement the two traits. `train/` and `engine/` use them.

mod decoding;
mod network;
mod passes;

pub(crate) use decoding::{Choice, Decoding, Row};
pub(crate) use network::Network;
pub(crate) use passes::{Divergence, Passes, Second};
