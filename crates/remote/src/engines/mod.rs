//! Rollouts on vLLM and SGLang servers.
//!
//! [`EngineSource`] creates policies for runs whose config has a `rollout.engine` table. The
//! learner runs in this process. It writes each version of its adapter or full weights to a shared
//! folder under a unique name; the servers load that version and sample from it.
//!
//! | file | subject |
//! |---|---|
//! | `source.rs` | [`EngineSource`]: creates a policy from a config, after early checks |
//! | `policy.rs` | the learner in this process with remote samplers |
//! | `versions.rs` | versions in the shared folder: files and names |
//! | `loading.rs` | loads weight versions into servers, as adapters or full weights |
//! | `check.rs` | compares a server's log-probs with the learner's |
//! | `sampler.rs` | the sampler of a rollout lane |
//! | `pictures.rs` | pictures in prompts |
//! | `server_pool.rs` | servers, sessions, retries |
//! | `concurrency_limit.rs` | back-pressure: limits concurrent requests to a server |
//! | `readings.rs` | the load reported by servers |
//! | `dialect.rs`, `vllm.rs`, `completions.rs`, `sglang.rs` | encodes requests and decodes responses |
//! | `error.rs` | [`EngineError`] |

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
