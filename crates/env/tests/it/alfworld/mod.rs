//! The ALFWorld engine on a small kitchen of our own; needs no data.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod environment;
mod files;
mod kitchen;
mod rules;
