//! Tests of the server over real connections.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

mod client;
mod engine;
mod hostile;
mod interface;
mod model;
mod openai_client;
