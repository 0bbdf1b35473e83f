//! Tests of runs with samplers on servers.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod agent;
mod double;
mod elsewhere;
mod load;
#[path = "../../../agent/tests/agents/model.rs"]
mod model;
mod pictures;
mod refusals;
mod runs;
#[path = "../common/serving.rs"]
mod serving;
mod staleness;
mod weights;
