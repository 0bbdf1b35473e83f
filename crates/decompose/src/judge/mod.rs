//! The judge: a language model behind an OpenAI-compatible endpoint scores every turn, and the
//! scores split a trajectory's return into credits (HAS, decomposer `judge`).
//!
//! With the score `s_t` in 0..10 of turn `t`: `r_t = s_t R / sum_s s_s`. Every turn gets `R / T` if
//! the scores sum to about 0 or there is no answer. These fallbacks are reported and counted in
//! [`JudgeMetrics`]. [`Judge::credits`] fails if more than [`JudgeConfig::max_failed_share`] of the
//! last questions were not answered.
//!
//! | file | subject |
//! |---|---|
//! | `decomposer.rs` | questions to the judge, and credits from its scores |
//! | `client.rs` | requests and their failures |
//! | `template.rs`, `template.toml` | prompt template |
//! | `scores.rs` | parsing of scores, and their conversion to credits |
//! | `cache.rs` | cache of answers on disk |
//! | `config.rs`, `error.rs` | settings, errors |
//!
//! Answers are cached on disk by the SHA-256 of model, settings, template and trajectory, so a
//! resumed run does not repeat questions.
//!
//! The API key is read from an environment variable named in the config. The key never appears in
//! configs, messages, files or `Debug` output.

mod cache;
pub(crate) mod client;
mod config;
mod decomposer;
mod error;
mod scores;
mod template;

pub use config::JudgeConfig;
pub use decomposer::{Judge, JudgeMetrics};
pub use error::JudgeError;
pub use template::Template;
