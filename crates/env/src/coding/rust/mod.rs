//! Tasks in Rust.
//!
//! | file | subject |
//! |---|---|
//! | `libraries.rs` | the built-in libraries, and what is known about their defects |
//! | `generator.rs` | tasks from libraries and defects |
//! | `checks.rs` | evaluates calls on a crate |

pub(super) mod checks;
pub(super) mod generator;
pub(super) mod libraries;
#[cfg(test)]
mod tests;
