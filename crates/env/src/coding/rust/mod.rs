//! Rust tasks: built-in libraries with defects, checked with `rustc`.

pub(super) mod checks;
pub(super) mod generator;
pub(super) mod libraries;
#[cfg(test)]
mod tests;
