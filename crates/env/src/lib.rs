//! Native text environments, prompts, action parsing and pinned task panels.

pub mod alfworld;
pub mod demonstration;
pub mod ezpoints;
pub mod panel;
pub mod parse;
pub mod pictures;
pub mod process;
pub mod prompt;
pub mod python;
pub mod registry;
pub mod replay;
mod saved;
pub mod search;
pub mod sokoban;
mod splits;
pub mod webshop;
pub mod world;
