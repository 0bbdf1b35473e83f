//! Environments implemented in Rust, prompt templates, action parsing and pinned task panels.
//!
//! The traits and types that a custom environment needs are stable: [`dataset`], [`registry`],
//! [`world`], [`demonstration`], [`parse`] and [`prompt`]. All other modules are internal to the
//! workspace and may change.
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

#[doc(hidden)]
pub mod alfworld;
#[doc(hidden)]
pub mod bfcl;
#[doc(hidden)]
pub mod coding;
pub mod dataset;
pub mod demonstration;
#[doc(hidden)]
pub mod ezpoints;
#[doc(hidden)]
pub mod panel;
pub mod parse;
#[doc(hidden)]
pub mod pictures;
#[doc(hidden)]
pub mod process;
pub mod prompt;
#[doc(hidden)]
pub mod python;
pub mod registry;
#[doc(hidden)]
pub mod replay;
mod saved;
#[doc(hidden)]
pub mod search;
#[doc(hidden)]
pub mod sokoban;
mod splits;
#[doc(hidden)]
pub mod swe;
#[doc(hidden)]
pub mod task_files;
#[doc(hidden)]
pub mod tau2;
#[doc(hidden)]
pub mod webshop;
pub mod world;
