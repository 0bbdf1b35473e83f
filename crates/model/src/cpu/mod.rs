//! The decoder on the CPU: the passes of training, the update, and decoding.
//!
//! | file | subject |
//! |---|---|
//! | `decode/` | one step of sampling over rows of different sequences |
//! | `decoder.rs` | the passes of training over a packed micro-batch |
//! | `decoder_layer.rs` | one layer of them |
//! | `head.rs` | the head on the last layer, in chunks of rows |
//! | `optimizer.rs` | AdamW, and its state on disk |
//! | `passes.rs` | the passes of a lane |
//! | `projection.rs` | linear layers in the flat buffer of weights |

pub(crate) mod decode;
pub(crate) mod decoder;
mod decoder_layer;
pub(crate) mod head;
pub(crate) mod optimizer;
mod passes;
mod projection;
