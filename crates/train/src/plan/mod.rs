//! Checks before a run starts, including its memory.

pub mod memory;
pub mod preflight;
mod sizes;
