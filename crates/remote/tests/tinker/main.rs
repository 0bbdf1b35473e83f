//! Compares a policy on a Tinker-compatible service with the native learner: updates, runs, and
//! faults. The service is a double with the native learner and engine (`double`), in both dialects
//! and both reductions.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod double;
mod faults;
mod passes;
mod runs;
#[path = "../common/serving.rs"]
mod serving;
mod setting;
mod updates;
mod wire;
