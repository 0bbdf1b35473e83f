//! The decoder on the CPU: training passes, the optimizer, and decoding.
//!
//! | file | subject |
//! |---|---|
//! | `decode/` | one decoding step with rows from different sequences |
//! | `decoder.rs` | training passes over a packed micro-batch |
//! | `decoder_layer.rs` | forward and backward pass of one decoder layer |
//! | `head.rs` | the heads on the last layer, computed in chunks of rows |
//! | `optimizer.rs` | AdamW and its state files |
//! | `passes.rs` | training passes of a lane |
//! | `projection.rs` | linear layers in the flat parameter buffer |

pub(crate) mod decode;
pub(crate) mod decoder;
mod decoder_layer;
pub(crate) mod head;
pub(crate) mod optimizer;
mod passes;
mod projection;
