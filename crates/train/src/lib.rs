//! Training: rollouts, credit, updates, checkpoints and the run directory.
//!
//! [`Run`] is the complete loop. It writes to its [`RunDirectory`], from which it resumes
//! bit-identically, and sends messages to an [`Observer`].
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
//! use turnwise_train::config::{ConfigSource, load};
//!
//! let quickstart = ConfigSource { preset: Some("quickstart".into()), ..ConfigSource::default() };
//! assert_eq!(load(&quickstart)?.env.kind, "alfworld");
//! let misspelt = ConfigSource { overrides: vec!["train.step=3".into()], ..quickstart };
//! assert!(load(&misspelt).is_err_and(|error| error.to_string().contains("Did you mean `steps`?")));
//! # Ok::<(), turnwise_train::TrainError>(())
//! ```

pub mod config;
mod embedder;
mod error;
pub mod learners;
pub mod plan;
pub mod record;
pub mod rollout;
pub mod run;
pub mod setup;
pub mod sft;
pub mod step;

pub use config::{Config, Methods, Registries};
pub use embedder::embedder;
pub use error::TrainError;
pub use learners::decomposer::{round_folder, turnrd_credits};
pub use learners::settings::learner_config;
pub use plan::preflight::Preflight;
pub use record::directory::{Phase, Position, RunDirectory};
pub use record::observer::{EvaluationPoint, Event, NoopObserver, Observer, Round};
pub use record::tensorboard::EventWriter;
pub use rollout::engines::sampling_params;
pub use rollout::tasks::TaskOrder;
pub use run::models::RunModels;
pub use run::{Run, RunBuilder, RunEnd};
