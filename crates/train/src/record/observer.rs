//! Events of a run for its caller. Libraries never print.

use std::ops::ControlFlow;
use std::path::Path;

use turnwise_core::Sampler;
use turnwise_model::vision::VisionConfig;
use turnwise_text::Tokenizer;

use crate::config::Config;
use crate::record::directory::{Position, RunDirectory};
use crate::record::metrics::Metrics;
use crate::setup::World;

/// Something that happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// A part of the work begins; the text names it.
    Stage(&'a str),
    /// A fact worth a line, for example the size of the model.
    Note(String),
    /// Demonstrations are being played.
    Demonstrations {
        /// Played episodes.
        played: usize,
        /// All of them.
        total: usize,
    },
    /// A rollout is under way.
    Rollout {
        /// Finished trajectories.
        finished: usize,
        /// All of them.
        total: usize,
        /// Solved ones.
        solved: usize,
        /// Tokens sampled so far.
        tokens: usize,
        /// Round of the step, if its selection can take several.
        round: Option<Round>,
    },
    /// A step is finished.
    Step {
        /// Position after the step.
        position: Position,
        /// Steps of this phase.
        total: u64,
        /// Its numbers.
        metrics: &'a Metrics,
    },
    /// A checkpoint was written.
    Checkpoint(&'a Path),
}

/// A round of sampling within a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Its number, from 1.
    pub number: usize,
    /// Maximum number of rounds; the batch is then used as it is.
    pub most: usize,
    /// Groups chosen in the rounds before.
    pub kept: usize,
    /// Groups wanted.
    pub wanted: usize,
}

/// Position of a run at which an evaluation is due.
pub struct EvaluationPoint<'a> {
    /// Position of the run.
    pub position: Position,
    /// The run.
    pub run: &'a RunDirectory,
    /// Its config.
    pub config: &'a Config,
    /// The world.
    pub world: &'a World,
    /// The policy's tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// Vision tower of the policy with its pictures, if it reads any.
    pub vision: Option<&'a VisionConfig>,
    /// Samplers over the policy's weights, one per lane.
    pub samplers: &'a mut [Box<dyn Sampler + Send>],
}

/// Receives the events of a run, and evaluates when requested.
pub trait Observer {
    /// Something happened.
    fn event(&mut self, event: Event<'_>);

    /// Evaluates the policy and writes `eval/<position>.json` of the run. Returns `Break` if
    /// interrupted. An error ends the run.
    ///
    /// # Errors
    /// Returns the reason why the evaluation could not be carried out, or why its file could not be
    /// written; it ends the run as [`crate::TrainError::Observer`].
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
