//! Events of a run. Library crates never print.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use turnwise_core::Sampler;
use turnwise_model::vision::VisionConfig;
use turnwise_text::Tokenizer;

use crate::config::{Config, Registries};
use crate::record::directory::{Position, RunDirectory};
use crate::record::metrics::Metrics;
use crate::setup::World;

/// An event of a run.
#[derive(Debug)]
pub enum Event<'a> {
    /// A stage begins.
    Stage(&'a str),
    /// A message, such as the size of the model.
    Note(String),
    /// Demonstrations are being played.
    Demonstrations {
        /// Played episodes.
        played: usize,
        /// All episodes.
        total: usize,
    },
    /// A rollout makes progress.
    Rollout {
        /// Finished trajectories.
        finished: usize,
        /// All trajectories.
        total: usize,
        /// Solved trajectories.
        solved: usize,
        /// Number of tokens sampled so far.
        tokens: usize,
        /// The current round of sampling, if the group selection may need several rounds.
        round: Option<Round>,
    },
    /// A step is finished.
    Step {
        /// Position after the step.
        position: Position,
        /// Steps in this phase.
        total: u64,
        /// Metrics of the step.
        metrics: &'a Metrics,
    },
    /// A checkpoint was written.
    Checkpoint(&'a Path),
}

/// A round of sampling within a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Number, from 1.
    pub number: usize,
    /// Maximum number of rounds. If the batch is not full after the last round, training uses fewer
    /// groups than configured.
    pub most: usize,
    /// Number of groups chosen in earlier rounds.
    pub kept: usize,
    /// Groups to choose.
    pub wanted: usize,
}

/// A due evaluation.
pub struct EvaluationPoint<'a> {
    /// Position.
    pub position: Position,
    /// The run.
    pub run: &'a RunDirectory,
    /// Its config.
    pub config: &'a Config,
    /// Known environments and methods.
    pub registries: &'a Registries,
    /// Its environment.
    pub world: &'a World,
    /// The policy's tokenizer.
    pub tokenizer: &'a Arc<Tokenizer>,
    /// The policy's vision tower, if any.
    pub vision: Option<&'a VisionConfig>,
    /// Samplers over the policy's weights, one per lane.
    pub samplers: &'a mut [Box<dyn Sampler + Send>],
}

/// Receives events, and evaluates on request.
pub trait Observer {
    /// Receives an event.
    fn event(&mut self, event: Event<'_>);

    /// Evaluates the policy and writes `eval/<position>.json`. Returns `Break` if interrupted.
    ///
    /// # Errors
    /// Returns why the evaluation failed; this ends the run with [`crate::TrainError::Observer`].
    fn evaluate(&mut self, point: &mut EvaluationPoint<'_>) -> Result<ControlFlow<()>, String>;
}

/// Ignores all events and evaluates nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoopObserver;

impl Observer for NoopObserver {
    fn event(&mut self, _event: Event<'_>) {}

    fn evaluate(&mut self, _point: &mut EvaluationPoint<'_>) -> Result<ControlFlow<()>, String> {
        Ok(ControlFlow::Continue(()))
    }
}
