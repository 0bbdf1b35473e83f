//! Data types and traits shared by all crates of Turnwise.
//!
//! A policy behind a [`Sampler`] plays a [`Task`] in an [`Environment`], which gives a
//! [`Trajectory`] of [`Turn`]s. A [`Group`] holds the trajectories of one task, and a [`Batch`] the
//! groups of one training step. Credit assignment computes one advantage per turn, an [`Objective`]
//! computes the loss, and a [`Learner`] updates the weights. This crate has no tensors, async code
//! or I/O.
//!
//! ```
//! use turnwise_core::{Batch, Group, Task, Trajectory, Turn};
//!
//! let turns = [0.0, 1.0].map(|reward| Turn { reward, ..Turn::default() }).to_vec();
//! let trajectory = Trajectory::new(Task::new("task-1", "example", "open the door"), turns);
//! assert_eq!(trajectory.outcome_return(), 1.0);
//! assert_eq!(trajectory.step_returns(0.5), [0.5, 1.0]);
//! let batch = Batch { groups: vec![Group { trajectories: vec![trajectory] }] };
//! assert_eq!(batch.trajectories().count(), 1);
//! ```

mod action;
mod conversation;
mod digest;
mod environment;
mod error;
mod explanation;
mod learner;
mod masked_context;
mod method;
pub mod null_as_nan;
mod observation;
pub mod python;
mod reasoning;
mod required_passes;
mod retry;
mod sampler;
mod seed;
mod sequence;
mod table;
mod task;
mod task_list;
mod tool;
mod trajectory;

pub use action::{Action, ToolCall};
pub use conversation::{AgentTurn, ChatMessage, Continued, Conversation, MessageCall, Reply, TurnReward};
pub use digest::{digest, hexadecimal};
pub use environment::{Environment, Merge, Metric, PendingStep, Snapshot, Step, TaskSet};
pub use error::{EnvError, LearnError, ObjectiveError, SampleError};
pub use explanation::{Facts, StageRecord};
pub use learner::{
    DirectLoss, HiddenRequest, LOG_RATIO_BOUNDS, Learner, LossMetrics, LossReport, Objective, StepReport,
    TokenBatch, TokenGradients, TokenScores, TokenStatistics,
};
pub use masked_context::{MaskedContext, MaskedContextGradients, MaskedContextStatistics};
pub use method::{MethodTable, Preset};
pub use observation::{ImageHandle, Observation, Part};
pub use reasoning::Reasoning;
pub use required_passes::{
    ContextMask, GradientPass, GradientScale, MaskedContextPass, RequiredPasses, SecondPass,
};
pub use retry::{backoff, is_transient_status};
pub use sampler::{
    Completion, FinishReason, PromptTokens, RequestId, SampleRequest, Sampler, SamplingParams,
};
pub use seed::{Purpose, Rng, Seed};
pub use sequence::{TokenSequence, TurnSpan};
pub use table::{PerToken, PerTurn, ResponseTokens, ShapeError, Table, Turns, Unit};
pub use task::{Task, TaskLimits};
pub use task_list::{TaskList, Tasks};
pub use tool::{Tool, ToolError};
pub use trajectory::{Batch, Group, SCHEMA_VERSION, StopReason, Trajectory, Turn, TurnField, TurnKind};
