//! Rollouts on vLLM and SGLang servers.
//!
//! [`EngineSource`] creates policies for configs with a `rollout.engine` table. The learner runs in
//! Turnwise's process and writes each version of its adapter or full weights to a shared folder
//! under a unique name; the servers load that version and sample from it.

mod check;
mod completions;
mod concurrency_limit;
mod dialect;
mod error;
mod loading;
#[cfg(test)]
mod peer_tests;
mod pictures;
mod policy;
mod readings;
mod sampler;
mod server_pool;
mod sglang;
mod source;
mod versions;
mod vllm;

pub use error::EngineError;
pub use source::EngineSource;
