//! Training: rollouts, credit, updates, checkpoints and the run directory.
//!
//! [`Run`] is the whole loop; everything it does is written to its [`RunDirectory`], from which it can
//! be resumed bit for bit. What it has to say goes to an [`Observer`].

mod base;
pub mod checkpoint;
pub mod config;
mod critic;
mod decomposer;
mod engines;
mod error;
pub mod export;
mod hub;
mod learners;
mod log;
pub mod masked_contexts;
pub mod memory;
pub mod metrics;
pub mod observer;
pub mod panel;
mod preflight;
pub mod prompting;
pub mod rollout;
pub mod rundir;
mod sampling;
pub mod setup;
pub mod sft;
mod step;
mod step_metrics;
mod tasks;
mod tensorboard;
mod trainer;
pub mod update;
mod warm_start;

pub use base::BaseModel;
pub use config::Config;
pub use decomposer::{round_folder, turnrd_credits};
pub use engines::{engines, sampling_lanes, sampling_params};
pub use error::TrainError;
pub use learners::learner_config;
pub use observer::{EvaluationPoint, Event, NoopObserver, Observer};
pub use preflight::{Preflight, preflight};
pub use rundir::{Phase, Position, RunDirectory};
pub use tasks::TaskOrder;
pub use tensorboard::EventWriter;
pub use trainer::{Outcome, Run};
