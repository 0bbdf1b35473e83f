//! Events of a run for its caller. Library crates never print.

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
    /// A stage of the run begins.
    Stage(&'a str),
    /// A message, such as the size of the model.
    Note(String),
    /// Demonstrations are being played.
    Demonstrations {
        /// Number of played episodes.
        played: usize,
        /// Number of episodes in total.
        total: usize,
    },
    /// A rollout makes progress.
    Rollout {
        /// Number of finished trajectories.
        finished: usize,
        /// Number of trajectories in total.
        total: usize,
        /// Number of solved trajectories.
        solved: usize,
        /// Number of tokens sampled so far.
        tokens: usize,
        /// Round of the step, if the selection can take several.
        round: Option<Round>,
    },
    /// A step is finished.
    Step {
        /// Position after the step.
        position: Position,
        /// Number of steps in this phase.
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
    /// Number of the round, from 1.
    pub number: usize,
    /// Maximum number of rounds; the batch may then be smaller.
    pub most: usize,
    /// Groups chosen in earlier rounds.
    pub kept: usize,
    /// Number of groups to choose.
    pub wanted: usize,
}

/// A due evaluation.
pub struct EvaluationPoint<'a> {
    /// Position of the run.
    pub position: Position,
    /// The run.
    pub run: &'a RunDirectory,
    /// Its config.
    pub config: &'a Config,
    /// Environments and methods that the config names.
    pub registries: &'a Registries,
    /// Environment of the run.
    pub world: &'a World,
    /// The policy's tokenizer.
    pub tokenizer: &'a Arc<Tokenizer>,
    /// Vision tower of the policy, if it reads pictures.
    pub vision: Option<&'a VisionConfig>,
    /// Samplers over the policy's weights, one per lane.
    pub samplers: &'a mut [Box<dyn Sampler + Send>],
}

/// Receives the events of a run, and evaluates on request.
pub trait Observer {
    /// Receives an event.
    fn event(&mut self, event: Event<'_>);

    /// Evaluates the policy and writes `eval/<position>.json` of the run. Returns `Break` if
    /// interrupted.
    ///
    /// # Errors
    /// Returns why the evaluation failed or could not be written; this ends the run with
    /// [`crate::TrainError::Observer`].
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
