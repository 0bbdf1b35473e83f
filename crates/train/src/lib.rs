//! Training: rollouts, credit, updates, checkpoints and the run directory.
//!
//! [`Run`] is the complete loop. A run writes to its [`RunDirectory`], from which it resumes
//! bit-identically, and sends messages to an [`Observer`]. The items that this page lists are
//! stable. The modules in the folders below are internal to the workspace and left out of the
//! documentation.
//!
//! | folder | subject |
//! |---|---|
//! | [`config`] | the typed configuration |
//! | [`setup`] | environment and prompts |
//! | [`record`] | directory, checkpoints, panels, metrics, events |
//! | [`rollout`] | trajectories |
//! | [`learners`] | policy, critic, decomposer |
//! | [`plan`] | checks and memory before a run |
//! | [`sft`] | supervised updates |
//! | [`step`] | one RL step |
//! | [`run`] | whole runs: start, resume, phases |
//!
//! A folder only uses folders above it in this table (`tests/it/imports.rs`).
//!
//! ```
//! use turnwise_train::{ConfigSource, load};
//!
//! let quickstart = ConfigSource { preset: Some("quickstart".into()), ..ConfigSource::default() };
//! assert_eq!(load(&quickstart)?.env.kind, "alfworld");
//! let misspelt = ConfigSource { overrides: vec!["train.step=3".into()], ..quickstart };
//! assert!(load(&misspelt).is_err_and(|error| error.to_string().contains("Did you mean `steps`?")));
//! # Ok::<(), turnwise_train::TrainError>(())
//! ```

#[doc(hidden)]
pub mod config;
mod embedder;
mod error;
#[doc(hidden)]
pub mod learners;
#[doc(hidden)]
pub mod plan;
#[doc(hidden)]
pub mod record;
#[doc(hidden)]
pub mod rollout;
#[doc(hidden)]
pub mod run;
#[doc(hidden)]
pub mod setup;
#[doc(hidden)]
pub mod sft;
#[doc(hidden)]
pub mod step;

pub use config::{Config, ConfigSource, Methods, Registries, load};
pub use error::TrainError;
pub use record::directory::{Phase, Position, RunDirectory};
pub use record::metrics::{Metrics, MetricsLine, read_metrics};
pub use record::observer::{EvaluationPoint, Event, NoopObserver, Observer, Round};
pub use run::{Run, RunBuilder, RunEnd};

#[doc(hidden)]
pub use embedder::embedder;
#[doc(hidden)]
pub use learners::decomposer::{round_folder, turnrd_credits};
#[doc(hidden)]
pub use learners::settings::learner_config;
#[doc(hidden)]
pub use plan::preflight::Preflight;
#[doc(hidden)]
pub use record::tensorboard::EventWriter;
#[doc(hidden)]
pub use rollout::engines::sampling_params;
#[doc(hidden)]
pub use rollout::tasks::TaskOrder;
#[doc(hidden)]
pub use run::models::RunModels;
