//! Checks before a run starts, and its memory.
//!
//! | file | subject |
//! |---|---|
//! | [`preflight`] | all checks of a run's start, without the run |
//! | [`memory`] | memory of a config, and how to reduce it |
//! | `sizes.rs` | sizes in a config that determine its memory |

pub mod memory;
pub mod preflight;
mod sizes;
