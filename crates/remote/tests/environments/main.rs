//! Tests of environments on servers.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod appworld;
mod appworld_double;
mod appworld_real;
mod mcp;
mod mcp_double;
mod openenv;
mod openenv_double;
#[path = "../common/serving.rs"]
mod serving;

use std::time::{Duration, Instant};

use turnwise_core::{Purpose, Seed};

/// A seed of an environment.
fn seed() -> Seed {
    Seed::derive(0, Purpose::Environment, &[])
}

/// Waits until something holds.
#[track_caller]
fn until(holds: impl FnMut() -> bool) {
    until_within(Duration::from_secs(10), holds);
}

/// Like [`until`], with this time limit.
#[track_caller]
fn until_within(limit: Duration, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < end, "it never came to that");
        std::thread::sleep(Duration::from_millis(5));
    }
}
