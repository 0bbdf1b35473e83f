//! A policy on a Tinker-compatible service, held against the native learner: updates, runs, and what goes wrong on the way.
//! The service is a double with the native learner and engine behind it (`double`), in both dialects and both reductions.
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
