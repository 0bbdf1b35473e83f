//! Traits of a back-end: the passes of training, and the steps of sampling.
//!
//! | file | subject |
//! |---|---|
//! | `decoding.rs` | steps of sampling over a cache of keys and values |
//! | `network.rs` | the weights of one pass |
//! | `passes.rs` | forward and backward passes over micro-batches |
//!
//! `cpu/` and `cuda/` implement the two traits. `train/` and `engine/` use them.

mod decoding;
mod network;
mod passes;

pub(crate) use decoding::{Choice, Decoding, Row};
pub(crate) use network::Network;
pub(crate) use passes::{Divergence, Passes, Second};
