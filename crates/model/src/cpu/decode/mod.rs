//! One decoding step on the CPU: rows from different sequences with a key-value cache.
//!
//! | file | subject |
//! |---|---|
//! | `aligned.rs` | buffers aligned to cache lines |
//! | `attention.rs` | attention of a step's rows over cached keys and values |
//! | `choose.rs` | sampling a token, its log-prob and the entropy |
//! | `forward.rs` | forward pass of one decoding step |
//! | `host.rs` | decoding steps on the calling thread |
//! | `pages.rs` | keys and values of all sequences, in pages shared by sequences with the same prefix |
//! | `panel.rs` | weight matrices in panels |
//! | `projection.rs` | linear layers; in bf16 the adapter stays separate, since merging would round it away |
//! | `sharing.rs` | finds rows that read the same pages |
//! | `matmul.rs` | multiplies a step's few rows by a packed weight matrix |
//! | `vision.rs` | features of pictures |
//! | `vector.rs` | vectorized elementwise loops and reductions |
//! | `weights.rs` | weights packed for decoding |

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
