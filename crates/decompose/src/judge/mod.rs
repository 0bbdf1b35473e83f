//! The judge: a language model behind an OpenAI-compatible endpoint scores every turn of a trajectory,
//! and the scores split its return into credits (HAS, decomposer `judge`).
//!
//! With `s_t` in 0..10 the score of turn `t`: `r_t = s_t R / sum_s s_s`, or `R / T` for every turn where the scores
//! sum to nearly 0 or no answer could be had. A few such fallbacks do not stop a run; they are reported at once and counted
//! in [`JudgeMetrics`]. Where more than [`JudgeConfig::max_failed_share`] of the last questions stay without an answer,
//! [`Judge::credits`] fails.
//!
//! | file | subject |
//! |---|---|
//! | `decomposer.rs` | questions to the judge, credits from its answers |
//! | `client.rs` | one request, and what can go wrong with it |
//! | `template.rs`, `template.toml` | the question's text |
//! | `scores.rs` | from an answer to scores, from scores to credits |
//! | `cache.rs` | answers on disk |
//! | `config.rs`, `error.rs` | settings, errors |
//!
//! Answers are cached on disk by the SHA-256 of model, settings, template and trajectory, so that a
//! resumed run asks nothing twice.
//!
//! The API key is read from an environment variable that the config names. It is in no config,
//! message, file or `Debug` output.

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
