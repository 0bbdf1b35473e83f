//! Checks before a run starts, and the memory that it takes.
//!
//! | file | subject |
//! |---|---|
//! | [`preflight`] | everything that a run checks at its start, without the run |
//! | [`memory`] | the memory that a config takes, and what would lower it |
//! | `sizes.rs` | the sizes of a config that take memory |

pub mod memory;
pub mod preflight;
mod sizes;
