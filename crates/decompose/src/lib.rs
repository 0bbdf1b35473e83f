//! Splits the return of a trajectory into one credit per turn.
//!
//! Internal to the workspace: nothing here is stable, and the documentation leaves modules out.
//!
//! | module | subject |
//! |---|---|
//! | [`judge`] | a language model behind an OpenAI-compatible endpoint that scores the turns |
//! | [`turnrd`] | a small network that learns which turns earned the return |
//!
//! [`chat`] lets a language model continue a conversation.
//!
//! The first two methods split a return `R` into credits `r_t` that sum to `R` (HAS, section 3).
//!
//! ```
//! use turnwise_decompose::turnrd::{TurnRd, TurnRdConfig};
//!
//! let network = TurnRd::new(TurnRdConfig { hidden: 8, heads: 2, ..TurnRdConfig::default() }, 4, 0)?;
//! // Two turns and a goal, as vectors of width 4.
//! let (turns, goal) = ([0.1, 0.2, 0.3, 0.4, 0.4, 0.3, 0.2, 0.1], [1.0, 0.0, 0.0, 1.0]);
//! let credits = network.credits(&turns, &goal, 1.0)?.credits;
//! assert!((credits.iter().sum::<f64>() - 1.0).abs() < 1e-9);
//! # Ok::<(), turnwise_model::ModelError>(())
//! ```

#[doc(hidden)]
pub mod chat;
#[doc(hidden)]
pub mod judge;
#[doc(hidden)]
pub mod turnrd;

pub use chat::{ChatError, ChatModel, ChatSettings};
pub use judge::{Judge, JudgeConfig, JudgeError, JudgeMetrics};
