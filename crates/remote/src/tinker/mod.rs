//! Training on a service with the Tinker API: SkyRL's server, or Tinker itself.
//!
//! The service holds the weights, runs passes and samples; everything else runs in Turnwise. A loss
//! that the service implements exactly is sent by name. Otherwise a forward pass returns log-probs,
//! the [`turnwise_core::Objective`] computes `d loss / d log-prob`, and a linear loss with these
//! coefficients has the same gradient (`linear.rs`).
//!
//! API sources: SkyRL 0.3 and 0.4 (`skyrl/tinker/api.py`), and the Python client `tinker` 0.38.

mod archive;
mod client;
mod error;
mod example;
mod linear;
mod passes;
mod policy;
pub mod proto;
mod reduction;
mod requests;
mod sampler;
mod session;
mod source;
mod transport;
mod updates;

pub use client::{AdamParams, Client, ClientOptions, Dialect, RemoteModel};
pub use error::TinkerError;
pub use policy::TinkerPolicy;
pub use reduction::Reduction;
pub use requests::Timing;
pub use sampler::TinkerSampler;
pub use source::TinkerSource;
