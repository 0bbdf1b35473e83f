//! The state of a run that a checkpoint stores besides weights.

use crate::config::Config;
use crate::record::checkpoint::CheckpointState;
use crate::record::directory::{Phase, Position};

/// The start of reinforcement learning.
pub(crate) const RL_START: Position = Position { phase: Phase::Rl, step: 0 };

/// Position of a run, and numbers that depend on its past.
#[derive(Clone, Debug, PartialEq)]
pub struct RunState {
    /// Position of the run.
    pub position: Position,
    /// Tasks drawn from the training order.
    pub tasks_drawn: u64,
    /// The KL coefficient now.
    pub kl_coef: f64,
}

impl RunState {
    /// Returns the state of a run that begins.
    pub fn new(config: &Config) -> Self {
        let phase = if config.has_sft() { Phase::Sft } else { Phase::Rl };
        Self { position: Position { phase, step: 0 }, tasks_drawn: 0, kl_coef: config.objective.kl.coef }
    }

    /// Returns the state of a checkpoint for a run that continues with this config. An adapted KL
    /// coefficient is kept, unless the config has another coefficient than the one the checkpoint
    /// was `made` with.
    pub fn of_checkpoint(made: &Config, config: &Config, state: &CheckpointState) -> Self {
        // Runs of before there was a choice of groups drew as many tasks as they have groups.
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
