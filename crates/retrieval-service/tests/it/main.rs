//! Client and server, together and against faulty counterparts.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod client;
mod dense;
mod doubles;
mod server;
