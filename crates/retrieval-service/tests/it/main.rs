//! Client and server against each other and against doubles that misbehave.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod client;
mod dense;
mod doubles;
mod server;
