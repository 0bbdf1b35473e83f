//! Training on a service with the Tinker interface: SkyRL's server, or Tinker itself.
//!
//! The service holds the weights, runs the passes and samples. Rollouts, credit, objectives and the
//! training loop run locally, in Turnwise. A loss is sent by name if the service has exactly this
//! loss. Otherwise its derivatives are sent: a forward pass returns the log-probs, the
//! [`turnwise_core::Objective`] computes `d loss / d log-prob`, and a linear loss with these
//! coefficients has the same gradient (`linear.rs`).
//!
//! | file | subject |
//! |---|---|
//! | `source` | creates the policy of a run: a new one, or a checkpoint's |
//! | `policy` | the policy in training: phases, reference, checkpoints, samplers |
//! | `updates` | gradients and steps: which loss is sent in which form |
//! | `linear` | a loss by its derivatives |
//! | `reduction` | the service's means over tokens and sequences, and their measurement |
//! | `sampler` | responses from the service |
//! | `archive` | downloaded adapters |
//! | `client`, `session` | a session: its start and its calls |
//! | `passes`, `proto`, `example` | encoding of passes: requests, messages, sequences |
//! | `requests` | submission, results, retries |
//! | `transport` | HTTP |
//!
//! Source of the interface: SkyRL 0.3 and 0.4 (`skyrl/tinker/api.py`) and Python's `tinker` client,
//! 0.38.

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
pub use reduction::{Reduction, calibrate};
pub use requests::Timing;
pub use sampler::TinkerSampler;
pub use source::TinkerSource;
