//! A language model behind an OpenAI-compatible endpoint scores every turn, and a trajectory's
//! return is split by the scores (HAS, decomposer `judge`).
//!
//! With scores `s_t` from 0 to 10, the credit is `r_t = s_t R / sum_s s_s`, or `R / T` if the
//! scores sum to about 0 or are missing. [`JudgeMetrics`] counts both cases. If the share of
//! missing scores exceeds [`JudgeConfig::max_failed_share`], [`Judge::credits`] fails.
//!
//! Scores are cached on disk by the SHA-256 of model, settings, template and trajectory. The API
//! key comes from an environment variable and never appears in configs, messages, files or `Debug`
//! output.

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
