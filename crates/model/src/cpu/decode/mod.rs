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
