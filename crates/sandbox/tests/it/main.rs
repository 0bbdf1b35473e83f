//! Tests of the sandbox.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test may fail loudly and say what it skips")]

mod attempts;
mod escapes;
mod rooted;
mod runs;
