//! One step of sampling on the CPU: rows of different sequences over a cache of keys and values.
//!
//! | file | subject |
//! |---|---|
//! | `aligned.rs` | numbers that begin on a cache line |
//! | `attention.rs` | attention of a step's rows over the keys and values of their sequences |
//! | `choose.rs` | from logits to a token, its log-probability and the entropy |
//! | `forward.rs` | one forward step over rows of different sequences |
//! | `host.rs` | steps of sampling on the calling thread |
//! | `pages.rs` | keys and values of all sequences, in pages that sequences with the same beginning share |
//! | `panel.rs` | a weight matrix in memory |
//! | `projection.rs` | a projection; bf16 keeps its adapter separate, since rounding would lose it |
//! | `sharing.rs` | which rows of a step read the same pages |
//! | `matmul.rs` | rows times a packed weight matrix, for the few rows of a decoding step |
//! | `vision.rs` | features of pictures |
//! | `vector.rs` | elementwise and reducing loops of a decoding step, vectorised |
//! | `weights.rs` | the weights as the engine reads them |

mod aligned;
mod attention;
mod choose;
mod forward;
mod host;
mod matmul;
mod pages;
mod panel;
mod projection;
mod sharing;
mod vector;
mod vision;
mod weights;

#[cfg(all(test, feature = "cuda"))]
pub(crate) use choose::TokenSampler;
pub(crate) use host::{Host, PROMPT_ROWS};
pub(crate) use pages::Cache;
pub use weights::EngineWeights;
