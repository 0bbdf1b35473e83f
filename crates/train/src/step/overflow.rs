//! Overflows: trajectories that ended because their next prompt did not fit the context.

use turnwise_core::{StopReason, Trajectory};

use crate::TrainError;
use crate::config::Config;
use crate::record::observer::{Event, Observer};

/// Fraction of the trajectories from which on a warning is worth a line.
const WORTH_A_WARNING: f64 = 0.1;

/// Counts over everything that a step sampled, with groups that the selection drops, since
/// overflowing groups fail as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overflows {
    sampled: usize,
    overflowed: usize,
    /// Trajectories whose first prompt did not fit.
    without_turns: usize,
}

impl Overflows {
    pub(crate) fn add(&mut self, trajectory: &Trajectory) {
        let overflowed = trajectory.stop == StopReason::ContextOverflow;
        self.sampled += 1;
        self.overflowed += usize::from(overflowed);
        self.without_turns += usize::from(overflowed && trajectory.turns.is_empty());
    }

    /// Returns the share of the trajectories that overflowed; 0 of none.
    pub(crate) fn share(self) -> f64 {
        self.overflowed as f64 / self.sampled.max(1) as f64
    }

    /// Warns if many trajectories of the first step overflowed, and fails if no first prompt fits,
    /// because nothing would be learned.
    ///
    /// # Errors
    /// Fails if no trajectory has a turn.
    pub(crate) fn check(
        self,
        step: u64,
        config: &Config,
        observer: &mut dyn Observer,
    ) -> Result<(), TrainError> {
        if step > 0 {
            return Ok(());
        }
        let limit = config.rollout.max_context;
        if self.sampled > 0 && self.without_turns == self.sampled {
            return Err(TrainError::Config {
                origin: "rollout.max_context".into(),
                reason: format!(
                    "is {limit}, and with rollout.max_response_tokens = {} no first prompt fits, so that there is no turn to learn \
                     from; raise the one, lower the other, or choose a shorter prompt.template",
                    config.rollout.max_response_tokens
                ),
            });
        }
        if self.share() >= WORTH_A_WARNING {
            observer.event(Event::Note(format!(
                "warning: {:.0} % of the trajectories ended because their next prompt did not fit rollout.max_context = {limit}; \
                 the share of each step is rollout/overflow_rate",
                100.0 * self.share()
            )));
        }
        Ok(())
    }
}
