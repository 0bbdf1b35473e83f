//! Trajectories that ended because the next prompt did not fit the context.

use turnwise_core::{StopReason, Trajectory};

use crate::config::Config;
use crate::record::observer::{Event, Observer};

const WORTH_A_WARNING: f64 = 0.1;

/// Numbers of sampled and of overflowed trajectories. Includes trajectories of groups that the
/// selection drops, because overflowing groups often fail as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overflows {
    sampled: usize,
    overflowed: usize,
}

impl Overflows {
    pub(crate) fn add(&mut self, trajectory: &Trajectory) {
        let overflowed = trajectory.stop == StopReason::ContextOverflow;
        self.sampled += 1;
        self.overflowed += usize::from(overflowed);
    }

    pub(crate) fn share(self) -> f64 {
        self.overflowed as f64 / self.sampled.max(1) as f64
    }

    pub(crate) fn warn(self, step: u64, config: &Config, observer: &mut dyn Observer) {
        let limit = config.rollout.max_model_len;
        if step == 0 && self.share() >= WORTH_A_WARNING {
            observer.event(Event::Note(format!(
                "warning: {:.0} % of the trajectories ended because their next prompt did not fit rollout.max_model_len = {limit}; \
                 the share of each step is rollout/overflow_rate",
                100.0 * self.share()
            )));
        }
    }
}
