//! State of a run other than weights.

use crate::config::Config;
use crate::record::checkpoint::CheckpointState;
use crate::record::directory::{Phase, Position};

pub(crate) const RL_START: Position = Position { phase: Phase::Rl, step: 0 };

/// Position, and numbers that depend on the run's history.
#[derive(Clone, Debug, PartialEq)]
pub struct RunState {
    /// Position.
    pub position: Position,
    /// Number of tasks drawn from the training order so far.
    pub tasks_drawn: u64,
    /// Current KL coefficient.
    pub kl_coef: f64,
}

impl RunState {
    /// Returns the state of a new run.
    pub fn new(config: &Config) -> Self {
        let phase = if config.has_sft() { Phase::Sft } else { Phase::Rl };
        Self { position: Position { phase, step: 0 }, tasks_drawn: 0, kl_coef: config.objective.kl.coef }
    }

    /// Returns a checkpoint's state for a run with this config. The adapted KL coefficient is kept
    /// only if the initial coefficient in `config` is the same as in `made`, the config that wrote
    /// the checkpoint.
    pub fn of_checkpoint(made: &Config, config: &Config, state: &CheckpointState) -> Self {
        // Older runs drew as many tasks as they have groups.
        let drawn = || state.position.rl_step() * config.rollout.tasks_per_step as u64;
        Self {
            position: state.position,
            tasks_drawn: state.tasks_drawn.unwrap_or_else(drawn),
            kl_coef: state
                .kl_coef
                .filter(|_| config.objective.kl.coef == made.objective.kl.coef)
                .unwrap_or(config.objective.kl.coef),
        }
    }
}
