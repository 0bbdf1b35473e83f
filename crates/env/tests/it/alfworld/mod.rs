//! Tests of the ALFWorld engine with a hand-written kitchen; they need no data.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod environment;
mod files;
mod kitchen;
mod rules;
