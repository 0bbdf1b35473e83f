//! Worlds that servers play.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod appworld;
mod appworld_double;
mod mcp;
mod mcp_double;
mod openenv;
mod openenv_double;
mod serving;

use turnwise_core::{Purpose, Seed};

/// A seed of an environment.
fn seed() -> Seed {
    Seed::derive(0, Purpose::Environment, &[])
}
