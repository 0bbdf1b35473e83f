//! Checks before a run starts, including its memory.
//!
//! | file | subject |
//! |---|---|
//! | [`preflight`] | the checks of a run's start, without starting it |
//! | [`memory`] | memory of a config, and how to reduce it |
//! | `sizes.rs` | sizes in a config that determine its memory |

pub mod memory;
pub mod preflight;
mod sizes;
