//! Rollouts on vLLM and SGLang servers.
//!
//! [`EngineSource`] creates the policies of runs with a table `rollout.engine`. The learner is in
//! this process. It writes each version of its adapter or full weights to a shared folder under its
//! own name; the servers load the version and sample from it.
//!
//! | file | subject |
//! |---|---|
//! | `source.rs` | [`EngineSource`]: creates a policy from a config, after early checks |
//! | `policy.rs` | the learner in this process with remote samplers |
//! | `versions.rs` | versions in the shared folder: files and names |
//! | `loading.rs` | loads versions into servers: adapters, or full weights |
//! | `check.rs` | compares a response with the learner's scoring pass |
//! | `sampler.rs` | the sampler of a rollout lane |
//! | `pictures.rs` | pictures in prompts |
//! | `server_pool.rs` | servers, sessions, retries |
//! | `concurrency_limit.rs` | back-pressure: limits the concurrent requests to a server |
//! | `readings.rs` | the load that servers report |
//! | `dialect.rs`, `vllm.rs`, `completions.rs`, `sglang.rs` | requests to servers and their responses |
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
