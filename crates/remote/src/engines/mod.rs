//! Rollouts on vLLM and SGLang servers.
//!
//! [`EngineSource`] creates the policies of runs with a table `rollout.engine`. The learner is in
//! this process. Each version of its adapter, or of all its weights, is written to a shared folder
//! under its own name, loaded by the servers, and sampled from there.
//!
//! | file | subject |
//! |---|---|
//! | `source.rs` | [`EngineSource`]: from a config to a policy, checked before any long work |
//! | `policy.rs` | the learner in this process with samplers that are elsewhere |
//! | `versions.rs` | versions in the shared folder: their files and names |
//! | `loading.rs` | versions on their way into the servers: adapters, or all weights instead of the earlier ones |
//! | `check.rs` | one request held against the learner's own scoring pass |
//! | `sampler.rs` | the sampler that a lane of a rollout holds |
//! | `pictures.rs` | pictures in prompts, as servers get them |
//! | `server_pool.rs` | the servers, sessions that stay with one, repetitions |
//! | `concurrency_limit.rs` | back-pressure: the requests that a server is given at a time |
//! | `readings.rs` | what servers report of their load |
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
