//! The judge: a language model behind an OpenAI-compatible endpoint scores every turn of a trajectory,
//! and the scores split its return into credits (HAS, decomposer `judge`).
//!
//! [`Judge`] implements [`turnwise_credit::has::Decomposer`]. With `s_t` in 0..10 the score of turn `t`:
//! `r_t = s_t R / sum_s s_s`, or `R / T` for every turn where the scores sum to nearly 0 or no answer could
//! be had. That fallback never fails a training run; it is counted in [`JudgeMetrics`].
//!
//! Answers are cached on disk by the SHA-256 of model, settings, template and trajectory, so that a
//! resumed run asks nothing twice. No other module of the workspace but those of engines and services knows HTTP.
//!
//! The API key is read from an environment variable that the config names. It is in no config,
//! message, file or `Debug` output.

mod cache;
mod client;
mod config;
mod decomposer;
mod error;
mod scores;
mod template;

pub use config::JudgeConfig;
pub use decomposer::{Judge, JudgeMetrics};
pub use error::JudgeError;
pub use template::Template;
