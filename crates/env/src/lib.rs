//! Environments implemented in Rust, prompt templates, action parsing and pinned task panels.
//!
//! ```
//! use turnwise_env::registry::Registry;
//!
//! let worlds = Registry::builtin();
//! let names: Vec<&str> = worlds.kinds().map(|kind| kind.name()).collect();
//! assert!(names.contains(&"alfworld") && names.contains(&"search"));
//! let error = worlds.kind("alfword").err().map(|error| error.to_string());
//! assert!(error.is_some_and(|error| error.contains("did you mean `alfworld`?")));
//! ```

pub mod alfworld;
pub mod bfcl;
pub mod coding;
pub mod dataset;
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
pub mod swe;
pub mod task_files;
pub mod tau2;
pub mod webshop;
pub mod world;
