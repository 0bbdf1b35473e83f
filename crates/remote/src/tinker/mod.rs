//! Training on a service with the Tinker API: SkyRL's server, or Tinker itself.
//!
//! The service holds the weights, runs forward and backward passes, and samples. Rollouts, credit
//! assignment, objectives and the training loop run locally in Turnwise. A loss is sent by name if
//! the service implements exactly this loss. Otherwise its gradient is sent: a forward pass returns
//! the log-probs, the [`turnwise_core::Objective`] computes `d loss / d log-prob`, and a linear
//! loss with these coefficients has the same gradient (`linear.rs`).
//!
//! | file | subject |
//! |---|---|
//! | `source` | creates a run's policy, from the base model or a checkpoint |
//! | `policy` | the policy during training: phases, reference, checkpoints, samplers |
//! | `updates` | gradients and steps: how each loss is sent |
//! | `linear` | sends a loss as its gradient |
//! | `reduction` | how the service averages losses over tokens and sequences, and how this is measured |
//! | `sampler` | samples responses from the service |
//! | `archive` | downloaded adapters |
//! | `client`, `session` | a session: startup and calls |
//! | `passes`, `proto`, `example` | encodes passes: requests, messages, sequences |
//! | `requests` | submission, results, retries |
//! | `transport` | HTTP |
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
