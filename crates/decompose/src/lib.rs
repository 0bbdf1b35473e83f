//! Splits a trajectory's return `R` into credits `r_t`, one per turn, that sum to `R` (HAS, section
//! 3). A language model ([`judge`]) or a small trained network ([`turnrd`]) decides how much each
//! turn gets.
//!
//! Internal to the workspace: nothing here is stable, and the modules are hidden from the
//! documentation.
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
