//! Native text environments, prompts, action parsing and pinned task panels.

pub mod alfworld;
