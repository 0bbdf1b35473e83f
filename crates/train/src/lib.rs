//! Training: rollouts, credit, updates, checkpoints and the run directory.
//!
//! [`Run`] is the whole loop; everything it does is written to its [`RunDirectory`], from which it can
//! be resumed bit for bit. What it has to say goes to an [`Observer`].
//!
//! | folder | subject |
//! |---|---|
//! | [`run`] | the phases of a run, its directory, checkpoints, panels, metrics, events |
//! | [`rollout`] | trajectories: environments and samplers, prompts as tokens, which tasks |
//! | [`step`] | one step of reinforcement learning: rewards, credit, training set, updates, metrics |
//! | [`learners`] | what is trained: policy, critic, decomposer |
//! | [`sft`] | the warm start: demonstrations as sequences, supervised updates |
//! | [`plan`] | checks before a run starts, and the memory that it takes |
//! | [`config`] | the typed configuration |
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
mod methods;
pub mod plan;
pub mod rollout;
pub mod run;
pub mod setup;
pub mod sft;
pub mod step;

pub use config::Config;
pub use embedder::embedder;
pub use error::TrainError;
pub use learners::decomposer::{round_folder, turnrd_credits};
pub use learners::learner_config;
pub use methods::Methods;
pub use plan::preflight::{Preflight, preflight};
pub use rollout::engines::{engines, sampling_lanes, sampling_params};
pub use rollout::tasks::TaskOrder;
pub use run::directory::{Phase, Position, RunDirectory};
pub use run::observer::{EvaluationPoint, Event, NoopObserver, Observer, Round};
pub use run::tensorboard::EventWriter;
pub use run::{Resume, Run, RunEnd, RunParts};
