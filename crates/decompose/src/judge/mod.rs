//! The judge is a language model behind an OpenAI-compatible endpoint. It scores every turn, and a
//! trajectory's return is split into credits by these scores (HAS, decomposer `judge`).
//!
//! The credit of turn `t` with score `s_t` in 0..10 is `r_t = s_t R / sum_s s_s`. Every turn gets
//! `R / T` if the scores sum to about 0 or the judge gives none. These fallbacks are reported and
//! counted in [`JudgeMetrics`]. [`Judge::credits`] fails if more than
//! [`JudgeConfig::max_failed_share`] of the last questions were not answered.
//!
//! | file | subject |
//! |---|---|
//! | `decomposer.rs` | asks the judge and computes credits from its scores |
//! | `client.rs` | requests and their failures |
//! | `template.rs`, `template.toml` | prompt template |
//! | `scores.rs` | parsing of scores, and their conversion to credits |
//! | `cache.rs` | cache of scores on disk |
//! | `config.rs`, `error.rs` | settings, errors |
//!
//! Scores are cached on disk under the SHA-256 of model, settings, template and trajectory, so a
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
